#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Libraries that stand between programs and verbs, as Debian has them: UCX, Open MPI by it and by libfabric, libfabric.

usage: ucx.py DEVICE                both ends in this guest
       ucx.py DEVICE PEER_DEVICE    two guests, node 2 runs node.py
       ucx.py messages              a process of an MPI job, which the test starts
"""

import os
import re
import sys
import threading

import node
from guestlib import Failure, Tap, check, must, rounds
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

# Sizes of MPI messages: by each way that the libraries have, at once, and after an agreement.
MESSAGES = (0, 1, 100, 2000, 9000, 70000, 1 << 20, 5 << 20)

# fi_pingpong's providers, endpoints and domains. rxm makes datagrams that arrive of connections, rxd of datagrams.
ENDPOINTS = (("verbs", "msg", "{}"), ("verbs;ofi_rxm", "rdm", "{}"), ("verbs", "dgram", "{}-dgram"),
             ("verbs;ofi_rxd", "rdm", "{}-dgram"))

_port = 21000


def perftest(server, client, family, count, settings, *words):
    """ucx_perftest. It takes itself for a process of an MPI job where it has no terminal, unless it is told."""
    gid = client.call("gid", client.device, family)
    text, _ = between(server, client, ("env", f"UCX_IB_GID_INDEX={gid}", *settings, "ucx_perftest", "-P", 0, "-w", 10,
                                       "-n", rounds(count), *words), seconds=40)
    check(re.search(r"^Final:\s+\d+", text, re.MULTILINE), f"no final figures:\n{text}")
    check(not re.search(r"ERROR|WARN", text), text)


def transport(server, client, family, name, test, size, layout):
    perftest(server, client, family, 300, (), "-x", name, "-d", f"{client.device}:1", "-t", test, "-s", size, "-D", layout)


def protocol(server, client, family, test, size):
    perftest(server, client, family, 200, ("UCX_TLS=^shm",), "-t", test, "-s", size)


def mpi(settings, *words):
    """Two processes that exchange messages and compare what they get; returns what the job printed."""
    text = must("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", *settings, "mpirun", "--oversubscribe",
                "-n", 2, *words, "python3", os.path.abspath(__file__), "messages", seconds=60)
    check(text.count("all messages are right") == 2, text)
    return text


def mpi_by_ucx(device, family, choice):
    text = mpi((f"UCX_IB_GID_INDEX={node.gid(device, family)}", "UCX_LOG_LEVEL=info", f"UCX_TLS={choice}"), "--mca", "pml", "ucx")
    # UCX tells by what the two reach each other.
    check(re.search(rf"intra-node.*_verbs/{device}:1", text), f"not by {device}:\n{text}")


def mpi_by_libfabric():
    mpi((), "--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs")


def messages():
    """One of the two processes: the same bytes go there and come back, of all sizes; then many small ones."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    check(world.Get_size() == 2, f"a job of {world.Get_size()}")
    mine, other = world.Get_rank(), 1 - world.Get_rank()
    for size in MESSAGES:
        data = (bytes((index * 7 + size) % 251 for index in range(251)) * (size // 251 + 1))[:size]
        if mine == 0:
            world.Send(data, other, 5)
        got = bytearray(size)
        world.Recv(got, other, 5)
        check(got == data, f"{size} bytes differ")
        if mine == 1:
            world.Send(got, other, 5)
    for number in range(rounds(500)):
        check(world.sendrecv((mine, number), other, 7, None, other, 7) == (other, number), f"message {number}")
    check(world.allreduce(mine + 1) == 3, "the sum is wrong")
    world.Barrier()
    print("all messages are right", flush=True)


def pingpong(server, client, family, provider, endpoint, domain):
    """libfabric's own program, which compares what comes back."""
    global _port
    _port += 1
    address = server.link if family == "ipv4" else server.link6
    words = ["fi_pingpong", "-c", "-I", rounds(20), "-p", provider, "-e", endpoint, *(("-6",) if family == "ipv6" else ())]
    serving = server.start(*words, "-d", domain.format(server.device), "-B", _port, seconds=40)
    try:
        server.call("await_listener", _port)
        asking = client.start(*words, "-d", domain.format(client.device), "-P", _port, address, seconds=40)
        for running in (asking, serving):
            status, output = running.wait()
            check(status == 0, running.told(status, output))
    finally:
        serving.kill()


def main():
    if sys.argv[1:] == ["messages"]:
        try:
            return messages()
        except Failure as failure:
            sys.exit(str(failure))
    device, *peer = sys.argv[1:]
    threading.Thread(target=node.serve, args=(PORT,), daemon=True).start()
    client = Node("node 1", "127.0.0.1", device, "10.77.0.1")
    server = Node("node 2", "10.77.0.2", peer[0], "10.77.0.2") if peer else client
    client.link6, server.link6 = "fd77::1", "fd77::2" if peer else "fd77::1"
    tap = Tap()
    for family, transports in (("ipv4", TRANSPORTS), ("ipv6", OTHER)):
        for words in transports:
            tap.case("{}: UCX's {}, {}, {} bytes, {}".format(family, *words), transport, server, client, family, *words)
        for choice in () if peer else CHOICES:
            tap.case(f"{family}: Open MPI by UCX, {choice}", mpi_by_ucx, device, family, choice)
        for provider, endpoint, domain in ENDPOINTS:
            tap.case(f"{family}: libfabric's {provider}, {endpoint}", pingpong, server, client, family, provider, endpoint, domain)
    for test, size in PROTOCOLS:
        tap.case(f"ipv4: UCP, {test}, {size} bytes", protocol, server, client, "ipv4", test, size)
    if not peer:
        tap.case("Open MPI by libfabric", mpi_by_libfabric)
    tap.end()


if __name__ == "__main__":
    main()
