#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Programs that administrators measure RDMA with beside perftest: fio's rdma engine and qperf, both by rdma_cm.

usage: tools.py DEVICE                both ends in this guest
       tools.py DEVICE PEER_DEVICE    two guests, node 2 runs node.py
"""

import json
import re
import sys
import threading
import time

from guestlib import SLOW, Tap, check, rounds
from node import PORT, Node, serve

# The operations that fio's client asks for: `rw=write` makes it the client, whatever the operation is. SEND is not among
# them: fio posts receive requests too late for it whenever the client is faster, on rdma_rxe as well.
FIO = ("write", "read")

# qperf's tests of connections. A figure tells that messages went; those of `ver_` compare what an atomic operation returned
# and left. Its UC and UD name each other by LID alone, which RoCE has not (IBA volume 1, annex A17).
QPERF = ("rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw",
         "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")

_port = 22000


# A message that comes too early for fio's receive request. Each of its connections ends with one, and allows few retries, so
# the guest's processors decide.
TOO_EARLY = "RNR retry counter exceeded"


def fio_once(server, client, port, verb, size, total):
    """Returns whether both have ended well, and what each of them said."""
    common = ("fio", "--ioengine=rdma", "--thread", "--output-format=json", f"--port={port}", f"--bs={size}",
              f"--size={total}")
    serving = server.start(*common, "--name=server", "--rw=read", "--iodepth=16", seconds=10)
    try:
        # No table of sockets shows a port of rdma_cm, and a client that comes too early is refused.
        time.sleep(0.5 * SLOW)
        asking = client.start(*common, "--name=client", f"--hostname={server.link}", f"--verb={verb}", "--rw=write",
                              "--iodepth=16", "--iodepth_batch_complete=1", seconds=60)
        asked, answered = asking.wait(), serving.wait()
    finally:
        serving.kill()
    return asked[0] == 0 and answered[0] == 0, asked[1], f"{asking.told(*asked)}\n{serving.told(*answered)}"


def fio(server, client, verb, size):
    """The server gives memory; the client moves so many bytes, and says how many it has moved."""
    global _port
    total = rounds(256) * size
    for _ in range(5):
        _port += 1
        good, output, told = fio_once(server, client, _port, verb, size, total)
        if good:
            break
        check(TOO_EARLY in told or "reject" in told, told)
    check(good, told)
    job = json.loads(output[output.index("{"):])["jobs"][0]
    check(job["error"] == 0, output)
    check(job["write"]["io_bytes"] == total, f"{job['write']['io_bytes']} of {total} bytes")


def qperf(server, client, port, test):
    status, output = (asking := client.start("qperf", server.link, "-lp", port, "-cm", 1, "-t", 1, test, seconds=20)).wait()
    check(status == 0, asking.told(status, output))
    check(re.search(r"^\s+(bw|latency|msg_rate|recv_bw|verified.*)\s+=\s+[1-9]", output, re.MULTILINE), output)


def main():
    device, *peer = sys.argv[1:]
    threading.Thread(target=serve, args=(PORT,), daemon=True).start()
    client = Node("node 1", "127.0.0.1", device, "10.77.0.1")
    server = Node("node 2", "10.77.0.2", peer[0], "10.77.0.2") if peer else client
    tap = Tap()
    for verb in FIO:
        for size in (4096, 1 << 20):
            tap.case(f"fio, {verb}, {size} bytes", fio, server, client, verb, size)
    port = 22999
    serving = server.start("qperf", "-lp", port, seconds=300)
    try:
        server.call("await_listener", port)
        for test in QPERF:
            tap.case(f"qperf, {test}", qperf, server, client, port, test)
    finally:
        serving.kill()
    tap.end()


if __name__ == "__main__":
    main()
