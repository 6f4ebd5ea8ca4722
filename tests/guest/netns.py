#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Network namespaces: devices that all of them see, and devices that belong to one.

usage: netns.py TYPE DEVICE
       netns.py hold DEVICE     what the test does in a process of its own

DEVICE is there already, in the first namespace. `rdma system set netns` changes the mode only while there is no other
namespace, so every case begins and ends without.
"""

import contextlib
import errno
import json
import os
import subprocess
import sys

import node
import wire
from guestlib import (SLOW, Failure, Tap, at_once, call_within, calling_within, check, gid_index, must, namespace_mode, note,
                      port_is_free, remove_links, rounds, run, server_and_client, set_namespace_mode, wait_for, within)

CLASS = "/sys/class/infiniband"
DEBUGFS = "/sys/kernel/debug/ferrule"
# The namespace of the test, for commands that want a name.
FIRST = "ltfirst"
# Programs that one namespace runs with the other over a connection between them.
BETWEEN = (("ibv_rc_pingpong", 5000, 100, ("-c", "-e")), ("ib_write_bw", 65536, 100, ()), ("ib_read_bw", 16384, 100, ()),
           ("ibv_ud_pingpong", 1000, 100, ("-e",)))


def namespace_add(name):
    must("ip", "netns", "add", name)
    must("ip", "-n", name, "link", "set", "lo", "up")


def netdev_add(name, address, namespace=None):
    words = within(namespace)
    must(*words, "ip", "link", "add", name, "type", "dummy")
    must(*words, "ip", "link", "set", name, "mtu", 9000, "up")
    must(*words, "ip", "address", "add", f"{address}/24", "dev", name)


def link_add(device, netdev, namespace=None):
    must(*within(namespace), "rdma", "link", "add", device, "type", TYPE, "netdev", netdev)


def devices(namespace=None):
    """The devices that are seen in a namespace, by the three ways there are: netlink, sysfs, libibverbs."""
    words = within(namespace)
    ways = []

    def agree():
        ways[:] = ({device["ifname"] for device in json.loads(must(*words, "rdma", "-j", "dev", "show"))},
                   set(must(*words, "ls", CLASS).split()),
                   {line.split()[0] for line in must(*words, "ibv_devices").splitlines()[2:]})
        return ways[0] == ways[1] == ways[2]

    # One is asked after the other, and a device may be on its way meanwhile.
    wait_for(agree, "netlink, sysfs and libibverbs tell of the same devices")
    return ways[0]


def clear():
    """Remove the remains of a case. Devices of a namespace are in the first one when that has gone. That one gets a name,
    for commands that want one."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        must("ip", "netns", "delete", name)
    set_namespace_mode("shared")
    remove_links("lt")
    must("ip", "netns", "attach", FIRST, 1)


def expect_directories(*names):
    """Those in debugfs, of the devices of a case."""
    if TYPE != "ferrule":
        return
    found = {name for name in os.listdir(DEBUGFS) if name.startswith("lt")}
    check(found == set(names), f"{names}: there are {found}")
    for name in names:
        check(os.path.exists(f"{DEBUGFS}/{name}/engine"), f"{name} is empty")


def pingpong(device, gid=None):
    command = ["ibv_rc_pingpong", "-d", device, "-g", gid or gid_index(device), "-s", 1000, "-n", 50, "-c"]
    server_and_client(command, command)


def hold(device):
    """Open a device, leave its namespace, and go on when told so: by then it has gone."""
    # Where there is a need for it only: it takes seconds to load.
    from pyverbs.device import Context
    from pyverbs.pd import PD
    from pyverbs.pyverbs_error import PyverbsRDMAError

    context = Context(name=device)
    held = PD(context)
    with open("/proc/1/ns/net") as first:
        os.setns(first.fileno(), os.CLONE_NEWNET)
    print("holding", flush=True)
    sys.stdin.readline()
    try:
        PD(context)
    except PyverbsRDMAError as error:
        check(error.error_code == errno.EIO, f"a command after the end: {error}")
    else:
        check(False, "a device that has gone takes commands")
    held.close()
    context.close()


def await_gid(device, namespace=None):
    return str(call_within(namespace, node.gid, device, "ipv4"))


def traffic(device, namespace=None):
    call_within(namespace, pingpong, device)


@contextlib.contextmanager
def writing(device, namespace=None):
    """A program that writes for a long time, and its server: a list of both."""
    command = [*within(namespace), "ib_write_bw", "-d", device, "-x", await_gid(device, namespace), "-s", "4096", "-F",
               "-D", str(300 * SLOW)]
    running = []

    def start(*more):
        running.append(subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    try:
        start()
        call_within(namespace, node.await_listener, 18515)
        start("127.0.0.1")
        await_writes(device, namespace)
        yield running
    finally:
        for program in running:
            program.kill()
            program.wait()


def await_writes(device, namespace=None):
    def messages():
        shown = must(*within(namespace), "rdma", "-j", "statistic", "show", "link", f"{device}/1")
        return json.loads(shown)[0]["rcvd_messages"]

    before = messages()
    wait_for(lambda: messages() > before + 100, f"{device} carries messages")


def ended(program):
    """Both have failed, and none hangs."""
    for one in program:
        status = one.wait(20 * SLOW)
        check(status not in (0, -9), f"{one.args}: status {status}")


def refused(words, *texts):
    status, output = run(*words)
    check(status != 0, f"{' '.join(words)} succeeded")
    check(any(text in output for text in texts), f"{' '.join(words)} says: {output}")


def open_uverbs():
    """Tries to open each uverbs device in this namespace: device name, error."""
    tried = {}
    for name in os.listdir("/sys/class/infiniband_verbs"):
        if not name.startswith("uverbs"):
            continue
        try:
            os.close(os.open(f"/dev/infiniband/{name}", os.O_RDWR))
            tried[name] = None
        except OSError as error:
            tried[name] = type(error)
    return tried


# ---- Devices that all see ----

def all_see_all():
    check(namespace_mode() == "shared", f"the mode is {namespace_mode()}")
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1", "ltns")
    link_add("ltdev0", "lt0", "ltns")
    check(devices() == {DEVICE, "ltdev0"} == devices("ltns"), f"{devices()} {devices('ltns')}")
    # The socket is where the network device is.
    check(not port_is_free("ltns"), "the device has no port")
    await_gid("ltdev0")
    traffic("ltdev0")
    traffic("ltdev0", "ltns")
    traffic(DEVICE, "ltns")


def no_moves():
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    refused(("rdma", "dev", "set", "ltdev0", "netns", "ltns"), "not supported")
    refused(("rdma", "system", "set", "netns", "exclusive"), "busy")
    check("ltdev0" in devices(), "the device has gone")


# ---- Devices that belong to a namespace ----

def made_within():
    """A device belongs to the namespace of its network device, and nobody else sees or opens it."""
    set_namespace_mode("exclusive")
    for name in ("ltns", "ltother"):
        namespace_add(name)
    netdev_add("lt0", "10.79.0.1", "ltns")
    before = open_uverbs()
    link_add("ltdev0", "lt0", "ltns")
    check(devices("ltns") == {"ltdev0"}, f"within: {devices('ltns')}")
    check(devices() == {DEVICE} and not devices("ltother"), f"elsewhere: {devices()} {devices('ltother')}")
    after = open_uverbs()
    new = [error for name, error in after.items() if name not in before]
    check(new == [PermissionError], f"opened from elsewhere: {new}")
    check(not port_is_free("ltns") and port_is_free("ltother"), "the port is not where it belongs")
    await_gid("ltdev0", "ltns")
    traffic("ltdev0", "ltns")
    refused(("rdma", "link", "delete", "ltdev0"), "")
    refused((*within("ltother"), "rdma", "dev", "set", "ltdev0", "netns", "ltother"), "")
    must(*within("ltns"), "rdma", "link", "delete", "ltdev0")
    check(port_is_free("ltns"), "the port was not given back")
    # The same name and network device once more.
    link_add("ltdev0", "lt0", "ltns")
    traffic("ltdev0", "ltns")


def directories():
    """Each device has a directory in debugfs, though several have one name, and wherever it goes."""
    set_namespace_mode("exclusive")
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1", "ltns")
    link_add("ltdev0", "lt0", "ltns")
    within_it, = json.loads(must(*within("ltns"), "rdma", "-j", "dev", "show", "ltdev0"))
    number = within_it["ifindex"]
    expect_directories(f"ltdev0@{number}")
    netdev_add("lt1", "10.79.1.1")
    status, _ = run("rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", "lt1")
    if status:
        note("a name is in use by one namespace only: so it is before Linux 7.3")
    else:
        expect_directories("ltdev0", f"ltdev0@{number}")
        must("rdma", "link", "delete", "ltdev0")
        expect_directories(f"ltdev0@{number}")
    must(*within("ltns"), "rdma", "dev", "set", "ltdev0", "netns", FIRST)
    expect_directories("ltdev0")
    must("rdma", "dev", "set", "ltdev0", "netns", "ltns")
    expect_directories(f"ltdev0@{number}")
    must(*within("ltns"), "rdma", "dev", "set", "ltdev0", "name", "ltdev7")
    expect_directories(f"ltdev7@{number}")


def moved():
    """A device goes to another namespace and back; its network device and its socket stay where they are."""
    set_namespace_mode("exclusive")
    for name in ("ltns", "ltfar"):
        namespace_add(name)
    netdev_add("lt0", "10.79.0.1", "ltfar")
    link_add("ltdev0", "lt0", "ltfar")
    await_gid("ltdev0", "ltfar")
    for here, there in (("ltfar", "ltns"), ("ltns", None), (None, "ltns"), ("ltns", "ltfar")):
        must(*within(here), "rdma", "dev", "set", "ltdev0", "netns", there or FIRST)
        check("ltdev0" in devices(there) and "ltdev0" not in devices(here), f"from {here} to {there}: not there")
        check(not port_is_free("ltfar") and port_is_free("ltns"), "the port is not where it belongs")
        traffic("ltdev0", there)


def moved_between_peers():
    """Programs in one namespace reach another by a device whose network device is in a third."""
    set_namespace_mode("exclusive")
    for name in ("ltnear", "ltfar", "ltwire"):
        namespace_add(name)
    # By one veth the programs find each other, by the other one go the packets.
    must("ip", "link", "add", "lt0", "netns", "ltnear", "type", "veth", "peer", "name", "lt0", "netns", "ltfar")
    must("ip", "link", "add", "lt1", "netns", "ltwire", "type", "veth", "peer", "name", "lt1", "netns", "ltfar")
    for name, netdev, address in (("ltnear", "lt0", "10.79.0.1"), ("ltfar", "lt0", "10.79.0.2"),
                                  ("ltwire", "lt1", "10.79.1.1"), ("ltfar", "lt1", "10.79.1.2")):
        must("ip", "-n", name, "address", "add", f"{address}/24", "dev", netdev)
        must("ip", "-n", name, "link", "set", netdev, "mtu", 9000, "up")
    link_add("ltdev0", "lt1", "ltwire")
    link_add("ltdev1", "lt1", "ltfar")
    must(*within("ltwire"), "rdma", "dev", "set", "ltdev0", "netns", "ltnear")
    check(port_is_free("ltnear") and not port_is_free("ltwire"), "the port is not where the network device is")
    with nodes(("ltnear", "ltdev0", "10.79.0.1"), ("ltfar", "ltdev1", "10.79.0.2")) as (near, far):
        for program in BETWEEN:
            between(near, far, "ipv4", *program)
            between(far, near, "ipv4", *program)


def moved_under_a_program():
    """A program whose device is moved ends as if the device had gone; the device serves others."""
    set_namespace_mode("exclusive")
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    for here, there in ((None, "ltns"), ("ltns", None)):
        with writing("ltdev0", here) as program:
            must(*within(here), "rdma", "dev", "set", "ltdev0", "netns", there or FIRST)
            ended(program)
        traffic("ltdev0", there)


def namespace_ends():
    """A device comes back to the first namespace when its own ends, and goes when its network device does."""
    set_namespace_mode("exclusive")
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    must("rdma", "dev", "set", "ltdev0", "netns", "ltns")
    netdev_add("lt1", "10.79.1.1", "ltns")
    link_add("ltdev1", "lt1", "ltns")
    await_gid("ltdev1", "ltns")
    # A process in a namespace keeps it: a program does not notice that its name is deleted.
    with writing("ltdev1", "ltns") as program:
        must("ip", "netns", "delete", "ltns")
        for one in program:
            check(one.poll() is None, "the program has ended")
        check("ltdev0" not in devices(), "the device has left a namespace that is in use")
    wait_for(lambda: devices() == {DEVICE, "ltdev0"}, "one device is back, the other has gone")
    traffic("ltdev0")


def namespace_ends_under_descriptor():
    """An open device does not keep a namespace in which nobody is; its later calls are refused."""
    set_namespace_mode("exclusive")
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1", "ltns")
    link_add("ltdev0", "lt0", "ltns")
    with subprocess.Popen([*within("ltns"), sys.executable, __file__, "hold", "ltdev0"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as holder:
        try:
            check(holder.stdout.readline() == "holding\n", "the device was not opened")
            must("ip", "netns", "delete", "ltns")
            # It may be in the first namespace for a moment, before its network device goes.
            wait_for(lambda: devices() == {DEVICE}, "the device has gone with its namespace")
            holder.communicate("\n", timeout=20 * SLOW)
            check(holder.returncode == 0, f"the program ended with {holder.returncode}")
        finally:
            holder.kill()


def netdev_leaves():
    """A network device that goes to another namespace leaves its RDMA device behind, which goes."""
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    with writing("ltdev0") as program:
        must("ip", "link", "set", "lt0", "netns", "ltns")
        ended(program)
    wait_for(lambda: "ltdev0" not in devices(), "the device has gone")
    must("ip", "-n", "ltns", "link", "set", "lt0", "up")
    must("ip", "-n", "ltns", "address", "add", "10.79.0.1/24", "dev", "lt0")
    link_add("ltdev0", "lt0", "ltns")
    check(not port_is_free("ltns"), "the device has no port")
    await_gid("ltdev0", "ltns")
    traffic("ltdev0", "ltns")


def netdev_leaves_its_groups():
    """The memberships of programs end with their network device's stay in a namespace. Those that it has in another one from
    then on are none of theirs: its RDMA device leaves them alone when it goes after that."""
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    with subprocess.Popen(["/ferrule/build/tests/holder", "ltdev0", "all-nodes"], stdout=subprocess.PIPE, text=True) as member:
        try:
            check(member.stdout.readline() == "holding\n", "the groups were not joined")
            must("ip", "link", "set", "lt0", "netns", "ltns")
            wait_for(lambda: "ltdev0" not in devices(), "the device has gone")
        finally:
            member.kill()
    groups = must("ip", "-n", "ltns", "maddress", "show", "dev", "lt0").split()
    check("ff02::1" in groups and "33:33:00:00:00:01" in groups, f"{' '.join(groups)}")


def netdev_leaves_meanwhile():
    """A network device moves while its RDMA device is being registered, or moved: nobody finds that one by it meanwhile.
    It goes all the same."""
    set_namespace_mode("exclusive")
    for name in ("ltns", "ltfar"):
        namespace_add(name)
    made = 0
    for attempt in range(rounds(60, least=20)):
        must("ip", "link", "add", "lt0", "address", "02:79:00:00:00:01", "type", "dummy")
        add = ("rdma", "link", "add", "ltdev0", "type", TYPE, "netdev", "lt0")
        leave = ("ip", "link", "set", "lt0", "netns", "ltns")
        move = ("rdma", "dev", "set", "ltdev0", "netns", "ltfar")
        # Processes take turns in being first.
        if attempt % 4 < 2:
            must(*add)
            add = move
        done = at_once(*((leave, add) if attempt % 2 else (add, leave)))
        check(done[0 if attempt % 2 else 1], "the network device does not move")
        made += done[1 if attempt % 2 else 0]
        wait_for(lambda: not any("ltdev0" in must(*within(name), "rdma", "dev", "show") for name in (None, "ltfar")),
                 f"attempt {attempt}: the device has gone")
        must("ip", "-n", "ltns", "link", "delete", "lt0")
    note(f"{made} devices were there before their network device left")


def address_elsewhere():
    """The address of a macvlan is a GID of the device below, but in another namespace nobody can use it."""
    namespace_add("ltns")
    netdev_add("lt0", "10.79.0.1")
    link_add("ltdev0", "lt0")
    must("modprobe", "macvlan")
    must("ip", "link", "add", "link", "lt0", "name", "ltmac", "netns", "ltns", "type", "macvlan", "mode", "bridge")
    must("ip", "-n", "ltns", "address", "add", "10.79.5.1/24", "dev", "ltmac")
    must("ip", "-n", "ltns", "link", "set", "ltmac", "up")

    def gids():
        return [index for index, gid in node.roce_gids("ltdev0") if gid.endswith(":0a4f:0501")]

    # The core fills the table from a work queue.
    wait_for(gids, "the address is a GID")
    must("sh", "-c", f"echo 1 > {DEBUGFS}/ltdev0/wire_only")
    traffic("ltdev0")
    try:
        pingpong("ltdev0", gids()[0])
    except Failure as failure:
        check("Failed to modify QP" in str(failure), f"it is refused otherwise: {failure}")
    else:
        check(False, "the address can be used")


# ---- Namespaces that talk to each other ----

@contextlib.contextmanager
def nodes(*those):
    """An agent in each namespace: (name, device, address by which it is found)."""
    with contextlib.ExitStack() as agents:
        for name, _, _ in those:
            agents.enter_context(calling_within(name, node.serve, node.PORT))
        yield [wire.Namespace(*one) for one in those]


def between(server, client, family, program, size, count, more):
    call = wire.pingpong if "pingpong" in program else wire.perftest
    call(server, client, family, program, size, count, *more)


def two_exclusive():
    """The programs of two namespaces, each of which has a device of its own."""
    set_namespace_mode("exclusive")
    with wire.namespaces(TYPE) as ((left, right), _):
        check(devices("left") == {left.device} and devices("right") == {right.device}, "they see each other's device")
        for family in ("ipv4", "ipv6"):
            for program in BETWEEN:
                between(left, right, family, *program)


def first_and_another():
    """One of the two is the first namespace."""
    namespace_add("ltns")
    must("ip", "link", "add", "lt0", "type", "veth", "peer", "name", "lt0", "netns", "ltns")
    for words, address in (((), "10.79.0.1"), (within("ltns"), "10.79.0.2")):
        must(*words, "ip", "address", "add", f"{address}/24", "dev", "lt0")
        must(*words, "ip", "link", "set", "lt0", "mtu", 9000, "up")
    link_add("ltdev0", "lt0")
    link_add("ltdev1", "lt0", "ltns")
    check(not port_is_free() and not port_is_free("ltns"), "a device has no port")
    with calling_within(None, node.serve, node.PORT), nodes(("ltns", "ltdev1", "10.79.0.2")) as (other,):
        here = node.Node("here", "127.0.0.1", "ltdev0", "10.79.0.1")
        for program in BETWEEN:
            between(here, other, "ipv4", *program)
            between(other, here, "ipv4", *program)


def groups_within():
    """Two devices of one namespace, whose networks are joined: each has what the other sends to a group, once."""
    must("ip", "link", "add", "lt0", "type", "veth", "peer", "name", "lt1")
    for number in range(2):
        must("ip", "address", "add", f"fd79::{number + 1}/64", "dev", f"lt{number}", "nodad")
        must("ip", "link", "set", f"lt{number}", "mtu", 9000, "up")
        link_add(f"ltdev{number}", f"lt{number}")
    must("env", "PEER_DEVICE=ltdev1", f"PEER_NETNS={FIRST}", "PEER_NETDEV=lt1", "/ferrule/build/tests/groups", "--type", TYPE,
         "--only", "ipv6", "ltdev0", seconds=60)


def main():
    tap = Tap()
    must("modprobe", "veth")
    for case in (all_see_all, no_moves, made_within, directories, moved, moved_between_peers, moved_under_a_program,
                 namespace_ends, namespace_ends_under_descriptor, netdev_leaves, netdev_leaves_its_groups, netdev_leaves_meanwhile,
                 address_elsewhere, two_exclusive, first_and_another, groups_within):
        clear()
        tap.case(case.__name__, case)
    clear()
    tap.end()


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(sys.argv[2])
    else:
        TYPE, DEVICE = sys.argv[1:]
        main()
