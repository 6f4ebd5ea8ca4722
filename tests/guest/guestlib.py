# SPDX-License-Identifier: GPL-2.0
"""The parts that the guest's Python tests share: TAP, commands, a device's GID, a server and its client."""

import contextlib
import ctypes
import errno
import glob
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass

SLOW = int(os.environ.get("TEST_SLOW", "1"))

# Whether this kernel preempts softirqs and holders of spinlocks.
PREEMPT_RT = "PREEMPT_RT" in os.uname().version


def rounds(count, least=20, fewer=1):
    """So many; but as many times fewer as the guest is slower, or as asked for, if this is no long run."""
    if "TEST_LONG" in os.environ:
        return count
    return max(min(count, least), count // max(SLOW, fewer))


def some(cases, count):
    """All of them; but only the first so many where the guest is slow, if this is no long run."""
    return cases if SLOW == 1 or "TEST_LONG" in os.environ else cases[:count]


class Failure(Exception):
    """A case has failed; the message says why."""


class Skip(Exception):
    """A case cannot run here; the message says why."""


class Tap:
    """Runs cases and prints a line for each."""

    def __init__(self):
        self.count = 0
        self.failed = 0

    def case(self, name, function, *args):
        self.count += 1
        begin = time.monotonic()
        try:
            function(*args)
        except Skip as skip:
            print(f"ok {self.count} - {name} # SKIP {skip}", flush=True)
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            self.failed += 1
            note(str(failure))
            print(f"not ok {self.count} - {name}", flush=True)
        else:
            print(f"ok {self.count} - {name} # {time.monotonic() - begin:.1f} s", flush=True)

    def end(self):
        print(f"1..{self.count}", flush=True)
        sys.exit(1 if self.failed else 0)


def note(text):
    for line in text.splitlines():
        print(f"# {line}", flush=True)


def check(condition, text):
    if not condition:
        raise Failure(text)


def run(*words, seconds=20):
    """Run a command; returns its status and all that it printed."""
    try:
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds * SLOW)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{' '.join(str(word) for word in words)}: not done within {seconds * SLOW} s\n"
                      f"{(late.stdout or b'').decode(errors='replace')}") from None
    return done.returncode, done.stdout


def must(*words, seconds=20):
    """Run a command that has to succeed; returns what it printed."""
    status, output = run(*words, seconds=seconds)
    check(status == 0, f"{' '.join(str(word) for word in words)}: status {status}\n{output}")
    return output


def at_once(*commands):
    """Runs commands at a time; whether each succeeded."""
    running = [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for command in commands]
    return [one.wait(20 * SLOW) == 0 for one in running]


def read(path):
    with open(path) as file:
        return file.read().strip()


@contextlib.contextmanager
def huge_pages(count):
    """Has so many pages of 2 MiB reserved, as tests want that use them."""
    path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    before = read(path)
    with open(path, "w") as file:
        file.write(str(count))
    try:
        yield
    finally:
        with open(path, "w") as file:
            file.write(before)


# The subsystem of ferrule-nic's PCI functions.
SUBSYSTEM = "0x4645"


def is_function(device):
    """Whether a device is a PCI function of ferrule-nic."""
    path = f"/sys/class/infiniband/{device}/device/subsystem_device"
    return os.path.exists(path) and read(path) == SUBSYSTEM


PCI = "/sys/bus/pci"


def pci_function():
    """The PCI address of this guest's function of ferrule-nic, if it has one."""
    for path in glob.glob(f"{PCI}/devices/*/subsystem_device"):
        if read(path) == SUBSYSTEM:
            return path.split("/")[-2]
    return None


def set_driver(address, bound):
    """Let the driver take the function, or let go of it."""
    with open(f"{PCI}/drivers/ferrule/{'bind' if bound else 'unbind'}", "w") as file:
        file.write(address)


# The message of perftest when it could not learn the rate of the processor's clock, and its figures are zero: a virtual
# processor that waits for the host meanwhile measures nonsense.
CLOCK_UNKNOWN = "Correlation coefficient"


def check_pingpong(program, size, count, text):
    """Check what a ping-pong of rdma-core printed: how many bytes there were, or of XRC that all went well."""
    wanted = r"^success$" if "xsrq" in program else rf"{2 * size * count} bytes in "
    check(re.search(wanted, text, re.MULTILINE), f"not all bytes were counted:\n{text}")
    check("invalid data" not in text, text)


def check_perftest(size, text):
    """Check what a program of perftest printed: a row for this size, with figures, if it has any."""
    row = re.search(rf"^\s*{size}\s+\d+\s+(.*)$", text, re.MULTILINE)
    check(row, f"no row of results:\n{text}")
    if CLOCK_UNKNOWN not in text:
        check(any(float(figure) > 0 for figure in row[1].split()), f"the row has no figure:\n{text}")


def wait_for(condition, what, seconds=10):
    """Wait until a function is true."""
    end = time.monotonic() + seconds * SLOW
    while not condition():
        check(time.monotonic() < end, f"{what}: not so after {seconds * SLOW} s")
        time.sleep(0.02)


def gid_index(device):
    """The index of the device's first RoCEv2 GID that is an IPv4 address; with none, of its first RoCEv2 GID."""
    port = f"/sys/class/infiniband/{device}/ports/1"
    other = None
    for index in sorted(os.listdir(f"{port}/gids"), key=int):
        try:
            if read(f"{port}/gid_attrs/types/{index}") != "RoCE v2":
                continue
        except OSError:
            # An empty entry of the table has no type.
            continue
        if read(f"{port}/gids/{index}").startswith("0000:0000:0000:0000:0000:ffff:"):
            return int(index)
        other = int(index) if other is None else other
    check(other is not None, f"{device} has no RoCEv2 GID")
    return other


def listens(port):
    """Whether a TCP socket listens on the port."""
    for family in ("tcp", "tcp6"):
        for line in read(f"/proc/net/{family}").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False


def within(namespace):
    """The words in front of a command that is to run in a namespace; without one, here."""
    return ("ip", "netns", "exec", namespace) if namespace else ()


@contextlib.contextmanager
def inside(namespace):
    """This thread is in a network namespace, or stays where it is without one: sockets that it opens belong to that."""
    if not namespace:
        yield
        return
    with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{namespace}") as there:
        os.setns(there.fileno(), os.CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(before.fileno(), os.CLONE_NEWNET)


_MS_SLAVE_AND_BELOW = 0x84000
_MNT_DETACH = 2


def _enter(namespace):
    """Enters a network namespace as `ip netns exec` does, with its sysfs in place of the one before."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name, *arguments):
        check(getattr(libc, name)(*arguments) == 0, f"{name}: {os.strerror(ctypes.get_errno())}")

    with open(f"/run/netns/{namespace}") as there:
        os.setns(there.fileno(), os.CLONE_NEWNET)
    os.unshare(os.CLONE_NEWNS)
    call("mount", b"", b"/", b"none", ctypes.c_ulong(_MS_SLAVE_AND_BELOW), None)
    call("umount2", b"/sys", _MNT_DETACH)
    call("mount", namespace.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None)


def _fork_within(namespace, function):
    """A process that calls a function where a command with `within` in front would run; returns its number. Another Python
    would do, too, and be there seconds later where the guest is slow."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if namespace:
            _enter(namespace)
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def call_within(namespace, function, *arguments):
    """Call a function in a namespace; returns what it returns, if JSON can tell it."""
    read_end, write_end = os.pipe()

    def tell():
        try:
            answer = {"value": function(*arguments)}
        except (Failure, OSError) as failure:
            answer = {"failure": str(failure)}
        with os.fdopen(write_end, "w") as file:
            json.dump(answer, file)

    pid = _fork_within(namespace, tell)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        told = file.read()
    _, status = os.waitpid(pid, 0)
    check(status == 0, f"{function.__name__} in {namespace}: status {status}")
    answer = json.loads(told)
    check("failure" not in answer, f"in {namespace}: {answer.get('failure')}")
    return answer["value"]


@contextlib.contextmanager
def calling_within(namespace, function, *arguments):
    """Meanwhile, a process in a namespace calls a function that does not return."""
    pid = _fork_within(namespace, lambda: function(*arguments))
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def namespace_mode():
    """Whether RDMA devices are shared by all network namespaces, or each is exclusive to one."""
    words = must("rdma", "system", "show").split()
    return words[words.index("netns") + 1]


def set_namespace_mode(wanted):
    """A namespace that was deleted takes a moment to go, and before it has, the mode cannot be changed."""
    wait_for(lambda: run("rdma", "system", "set", "netns", wanted)[0] == 0, f"the mode is {wanted}")
    check(namespace_mode() == wanted, f"the mode is {namespace_mode()}")


def remove_links(prefix):
    """Delete the RDMA devices in sight, and the network devices, whose names begin so."""
    for device in os.listdir("/sys/class/infiniband"):
        if device.startswith(prefix):
            run("rdma", "link", "delete", device)
    for netdev in os.listdir("/sys/class/net"):
        if netdev.startswith(prefix):
            run("ip", "link", "delete", netdev)


ROCE_PORT = 4791


def sockets_of_port(namespace=None):
    """The versions of IP, 4 and 6, by which somebody in a namespace has the port of RoCEv2."""
    found = set()
    for version, table in ((4, "udp"), (6, "udp6")):
        with inside(namespace):
            lines = read(f"/proc/thread-self/net/{table}").splitlines()[1:]
        if any(int(line.split()[1].rsplit(":", 1)[1], 16) == ROCE_PORT for line in lines):
            found.add(version)
    return found


def port_is_free(namespace=None):
    """Whether a program in a namespace can have the port of RoCEv2, by both versions of IP; it can by none or by both."""
    free = True
    with inside(namespace):
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            with socket.socket(family, socket.SOCK_DGRAM) as tried:
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    tried.bind((address, ROCE_PORT))
                except OSError as error:
                    check(error.errno == errno.EADDRINUSE, f"port {ROCE_PORT}: {error}")
                    free = False
                    break
    sockets = sockets_of_port(namespace)
    check(sockets == (set() if free else {4, 6}), f"port {ROCE_PORT} is taken by IP of versions {sockets}")
    return free


_ports = itertools.count(18601)


@dataclass
class Ended:
    """A process that has ended."""

    pid: int
    status: int         # as subprocess has it: negative where a signal ended it
    output: str
    usage: object       # as resource.getrusage() has it


def _has_ended(process):
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(process, output, seconds):
    """Wait for a process, and kill it and its children when it takes longer."""
    late = threading.Timer(seconds, _kill, (process,))
    late.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        late.cancel()
        late.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    output.seek(0)
    return Ended(process.pid, process.returncode, output.read().decode(errors="replace"), usage)


def pair(server, client, seconds=30):
    """Run a server with -p PORT and, once it listens, its client with the server's address; both have to succeed.

    Returns the results of both. Nothing of this thread runs while they do.
    """
    port = next(_ports)
    server = [*(str(word) for word in server), "-p", str(port)]
    client = [*(str(word) for word in client), "-p", str(port), "127.0.0.1"]
    started = []

    def start(command, output):
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                        start_new_session=True))
        return started[-1]

    with tempfile.TemporaryFile() as heard, tempfile.TemporaryFile() as told:
        try:
            serving = start(server, heard)
            wait_for(lambda: listens(port) or _has_ended(serving), f"{server[0]} listens")
            asked = _ended(start(client, told), told, seconds * SLOW)
            answered = _ended(serving, heard, (10 if asked.status == 0 else 2) * SLOW)
        finally:
            for process in started:
                if process.returncode is None:
                    _kill(process)
                    process.wait()
    for command, one in ((client, asked), (server, answered)):
        why = f"not done within {seconds * SLOW} s" if one.status == -signal.SIGKILL else f"status {one.status}"
        check(one.status == 0, f"{' '.join(command)}: {why}\n{asked.output}\nits server:\n{answered.output}")
    return answered, asked


def server_and_client(server, client, seconds=30):
    """The same; returns what both printed."""
    answered, asked = pair(server, client, seconds)
    return answered.output, asked.output
