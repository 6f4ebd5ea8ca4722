#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Libraries that stand between programs and verbs, as Debian has them: UCX, Open MPI by it and by libfabric, libfabric.

usage: ucx.py DEVICE                both ends in this guest
       ucx.py DEVICE PEER_DEVICE    two guests, node 2 runs node.py; its device may be rdma_rxe
"""

import contextlib
import json
import os
import re
import sys
import threading

import node
from guestlib import Tap, check, must, rounds
from node import PORT, Node
from wire import between

# UCX's tests of a transport: the test, the size, and how the data are laid out.
TRANSPORTS = (("rc_verbs", "am_lat", 8, "short"), ("rc_verbs", "am_bw", 4096, "zcopy"), ("rc_verbs", "put_lat", 8, "short"),
              ("rc_verbs", "put_bw", 65536, "zcopy"), ("rc_verbs", "get", 65536, "zcopy"), ("rc_verbs", "fadd", 8, "bcopy"),
              ("rc_verbs", "cswap", 8, "bcopy"), ("ud_verbs", "am_lat", 8, "short"), ("ud_verbs", "am_bw", 2000, "bcopy"),
              ("ud_verbs", "am_bw", 4000, "zcopy"))
# With the other kind of address, a datagram's header matters, and nothing else differs.
OTHER = [words for words in TRANSPORTS if words[1] == "am_lat"]

# Those of UCP, which makes its protocols of what transports it has. Not its atomic operations: UCX 1.18 ends each with a
# flush that its rc_verbs has for mlx5 alone, and reports the error.
PROTOCOLS = (("tag_lat", 8), ("tag_bw", 65536), ("tag_bw", 1 << 20), ("ucp_am_lat", 8), ("ucp_put_lat", 8), ("ucp_get", 65536),
             ("stream_bw", 4096))

# The transports that UCX may choose from: one kind of queue pair, or any to another machine, TCP as well.
CHOICES = ("self,rc", "self,ud", "^shm")

# fi_pingpong's providers, endpoints and domains. rxm makes datagrams that arrive of connections, rxd of datagrams.
ENDPOINTS = (("verbs", "msg", "{}"), ("verbs;ofi_rxm", "rdm", "{}"), ("verbs", "dgram", "{}-dgram"),
             ("verbs;ofi_rxd", "rdm", "{}-dgram"))

# An environment that tells none of the libraries anything. Other cases set UCX_IB_GID_INDEX to choose IPv4 or IPv6, UCX_TLS
# to leave out the memory that processes of one guest share, and for Open MPI the two that let root use it.
PLAIN = ("env", "-i", f"PATH={os.environ['PATH']}", "HOME=/root", "LANG=C.UTF-8")

# Two containers of one machine: UCX takes processes with other IPC and process namespaces for such as share no memory.
CONTAINER = ("unshare", "--ipc", "--pid", "--fork", "--mount-proc")

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_job.py")
MPI_SETTINGS = "/etc/openmpi/openmpi-mca-params.conf"

# The message of fi_pingpong when its server has left first, and the row that it prints for each size.
LEFT = "cq_readerr: Work Request Flushed Error"
ROW = re.compile(r"^\S+\s+\d+\s+=\d+\s", re.MULTILINE)

_port = 21000


@contextlib.contextmanager
def carried(nodes, least, counters=("message_bytes",)):
    """Fails unless these counters of the nodes' devices have grown by so many bytes meanwhile: an RDMA device was chosen."""
    def taken():
        texts = [one.must("rdma", "-j", "statistic", "show", "link", f"{one.device}/1") for one in nodes]
        return sum(json.loads(text)[0][counter] for text in texts for counter in counters)

    nodes = set(nodes)
    before = taken()
    yield
    check(taken() - before >= least, f"{taken() - before} bytes of at least {least} went by the device")


def plain_perftest(server, client, prefix, test, size, count):
    """ucx_perftest with no variable, and no word about transports and devices."""
    count = rounds(count)
    with carried((server, client), size * count):
        text, _ = between(server, client, (*prefix, *PLAIN, "ucx_perftest", "-P", 0, "-w", 10, "-n", count, "-t", test,
                                           "-s", size), seconds=40)
    check(re.search(r"^Final:\s+\d+", text, re.MULTILINE), f"no final figures:\n{text}")
    check(not re.search(r"ERROR|WARN", text), text)


def plain_pingpong(server, client, words):
    with carried((server, client), rounds(20) * 4096):
        pingpong_of(server, client, server.link, (*PLAIN, "fi_pingpong", "-c", "-I", rounds(20), "-S", 4096, *words))


def perftest(server, client, family, count, settings, *words, options=lambda here: ()):
    """ucx_perftest. It takes itself for a process of an MPI job where it has no terminal, unless it is told."""
    gid = client.call("gid", client.device, family)
    text, _ = between(server, client, ("env", f"UCX_IB_GID_INDEX={gid}", *settings, "ucx_perftest", "-P", 0, "-w", 10,
                                       "-n", rounds(count), *words), options, seconds=40)
    check(re.search(r"^Final:\s+\d+", text, re.MULTILINE), f"no final figures:\n{text}")
    check(not re.search(r"ERROR|WARN", text), text)


def transport(server, client, family, name, test, size, layout):
    perftest(server, client, family, 300, (), "-x", name, "-t", test, "-s", size, "-D", layout,
             options=lambda here: ("-d", f"{here.device}:1"))


def protocol(server, client, family, test, size, choice="^shm"):
    perftest(server, client, family, 200, (f"UCX_TLS={choice}",), "-t", test, "-s", size)


def mpi(settings, job, *words):
    """Two processes of a job in this guest; returns what it printed."""
    text = must("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", *settings, "mpirun", "--oversubscribe",
                "-n", 2, *words, "python3", JOB, job, seconds=60)
    check(text.count("all is right") == 2, text)
    return text


def mpi_between(server, client, job, *words):
    """A process of a job in each guest, with no variable. Root has to say so, and mpirun how it starts programs at other
    machines, where it would take ssh."""
    with carried((server, client), 1000):
        text = must(*PLAIN, "mpirun", "--allow-run-as-root", "--host", "node1,node2", "--prtemca", "plm_ssh_agent",
                    f"python3 {JOB} agent", "-n", 2, *words, "python3", JOB, job, seconds=60)
    check(text.count("all is right") == 2, text)


def mpi_by_default(server, client):
    """Debian's settings exclude UCX and libfabric for all, with any adapter. Without them, Open MPI takes libfabric's verbs.
    Not for one-sided operations: those end inside libfabric, on rdma_rxe as well (features.md)."""
    for one in (server, client):
        one.must("sed", "-i", "-E", "/^ *(mtl|btl|pml|osc) *=/d", MPI_SETTINGS)
    mpi_between(server, client, "messages")


def mpi_by_ucx(device, family, choice):
    text = mpi((f"UCX_IB_GID_INDEX={node.gid(device, family)}", "UCX_LOG_LEVEL=info", f"UCX_TLS={choice}"), "messages",
               "--mca", "pml", "ucx")
    # UCX tells by what the two reach each other.
    check(re.search(rf"intra-node.*_verbs/{device}:1", text), f"not by {device}:\n{text}")


def mpi_by_libfabric():
    mpi((), "messages", "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs")


def memory_by_ucx(device):
    """Open MPI's puts, gets and atomic operations by UCX. It prints an error for the flush of each (see PROTOCOLS), and goes
    on: the data are compared."""
    mpi((f"UCX_IB_GID_INDEX={node.gid(device, 'ipv4')}", "UCX_TLS=self,rc"), "memory", "--mca", "pml", "ucx", "--mca", "osc",
        "ucx")


def pingpong(server, client, family, provider, endpoint, domain):
    words = ("fi_pingpong", "-c", "-I", rounds(20), "-p", provider, "-e", endpoint, *(("-6",) if family == "ipv6" else ()))
    pingpong_of(server, client, server.link if family == "ipv4" else server.link6, words,
                lambda here: ("-d", domain.format(here.device)))


def pingpong_of(server, client, address, words, options=lambda here: ()):
    """libfabric's own program, which compares what comes back. The last message is the client's, and the server may have left
    before the client looks: rxm then tells that its receive requests were flushed, when all data have been compared."""
    global _port
    _port += 1
    serving = server.start(*words, *options(server), "-B", _port, seconds=40)
    try:
        server.call("await_listener", _port)
        asking = client.start(*words, *options(client), "-P", _port, address, seconds=40)
        (asked, text), (served, other) = asking.wait(), serving.wait()
        check(served == 0, serving.told(served, other))
        left = LEFT in text and len(ROW.findall(text)) == len(ROW.findall(other)) > 0
        check(asked == 0 or left, asking.told(asked, text))
    finally:
        serving.kill()


def plain(tap, server, client, two_guests):
    """The libraries find ferrule by themselves; Open MPI's order of preference has to be told of UCX."""
    tests = (("tag_lat", 8, 200), ("tag_bw", 65536, 100), ("ucp_get", 65536, 100)) if two_guests else (("tag_bw", 65536, 100),)
    for test, size, count in tests:
        tap.case(f"no variable: UCP, {test}, {size} bytes", plain_perftest, server, client, () if two_guests else CONTAINER, test,
                 size, count)
    for words in (), ("-e", "msg"), ("-e", "rdm"):
        tap.case(" ".join(("no variable: fi_pingpong", *words)), plain_pingpong, server, client, words)
    if two_guests:
        tap.case("no variable: Open MPI with UCX", mpi_between, server, client, "messages", "--mca", "pml", "ucx")
        for job in "messages", "memory":
            tap.case(f"no variable: Open MPI by UCX, {job}", mpi_between, server, client, job, "--mca", "pml", "ucx",
                     "--mca", "osc", "ucx")
        # Last, since it changes the settings of both guests.
        tap.case("no variable: Open MPI", mpi_by_default, server, client)


def with_rxe(tap, node1, node2):
    """Each device as client and as server. Not by datagrams: UCX at rdma_rxe drops each that comes, as UCX's own check of a
    packet's kind reads rdma_rxe's completions (features.md). So UCP makes its connections by TCP."""
    for server, client in ((node2, node1), (node1, node2)):
        for family, transports in (("ipv4", TRANSPORTS), ("ipv6", OTHER)):
            for words in transports:
                if words[0] == "rc_verbs":
                    tap.case("{} to {}, {}: UCX's {}, {}, {} bytes, {}".format(client.device, server.device, family, *words),
                             transport, server, client, family, *words)
        for test, size in PROTOCOLS:
            tap.case(f"{client.device} to {server.device}: UCP, {test}, {size} bytes", by_device, server, client, test, size)


def by_device(server, client, test, size):
    ours = [one for one in (server, client) if one.device.startswith("ferrule")]
    with carried(ours, rounds(200) * size, ("message_bytes", "sent_bytes")):
        protocol(server, client, "ipv4", test, size, "self,\\rc_verbs,tcp")


def main():
    device, *peer = sys.argv[1:]
    threading.Thread(target=node.serve, args=(PORT,), daemon=True).start()
    client = Node("node 1", "127.0.0.1", device, "10.77.0.1")
    server = Node("node 2", "10.77.0.2", peer[0], "10.77.0.2") if peer else client
    client.link6, server.link6 = "fd77::1", "fd77::2" if peer else "fd77::1"
    tap = Tap()
    if peer and peer[0].startswith("rxe"):
        with_rxe(tap, client, server)
        return tap.end()
    for family, transports in (("ipv4", TRANSPORTS), ("ipv6", OTHER)):
        for words in transports:
            tap.case("{}: UCX's {}, {}, {} bytes, {}".format(family, *words), transport, server, client, family, *words)
        for choice in () if peer else CHOICES:
            tap.case(f"{family}: Open MPI by UCX, {choice}", mpi_by_ucx, device, family, choice)
        for provider, endpoint, domain in ENDPOINTS:
            tap.case(f"{family}: libfabric's {provider}, {endpoint}", pingpong, server, client, family, provider, endpoint, domain)
    if all(one.device.startswith("ferrule") for one in (server, client)):
        plain(tap, server, client, bool(peer))
    for test, size in PROTOCOLS:
        tap.case(f"ipv4: UCP, {test}, {size} bytes", protocol, server, client, "ipv4", test, size)
    if not peer:
        tap.case("Open MPI by libfabric", mpi_by_libfabric)
        tap.case("Open MPI's one-sided operations by UCX", memory_by_ucx, device)
    tap.end()


if __name__ == "__main__":
    main()
