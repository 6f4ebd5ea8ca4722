#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""One of the machines of a test that has several: another guest, or a network namespace.

usage: node.py PORT

Runs what it is told by TCP, for the test that has a Node for it. A connection is one request and its answer, each a
line of JSON; a program that runs when its connection ends is killed. While one runs, nothing of this process does.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from guestlib import SLOW, Failure, check, is_function, listens, must, read, wait_for

PORT = 18500


def roce_gids(device):
    """The RoCEv2 GIDs of a device: pairs of index and GID."""
    port = f"/sys/class/infiniband/{device}/ports/1"
    for index in sorted(os.listdir(f"{port}/gids"), key=int):
        with contextlib.suppress(OSError):
            if read(f"{port}/gid_attrs/types/{index}") == "RoCE v2":
                yield int(index), read(f"{port}/gids/{index}")


def gid(device, family):
    """The index of the device's first RoCEv2 GID that is an address of the family ("ipv4", "ipv6"), and none that holds
    on a link only."""
    def found():
        for index, value in roce_gids(device):
            is_ipv4 = value.startswith("0000:0000:0000:0000:0000:ffff:")
            if is_ipv4 if family == "ipv4" else not is_ipv4 and not value.startswith("fe80:"):
                return index
        return None

    wait_for(lambda: found() is not None, f"{device} has a GID of {family}")
    return found()


def await_listener(port):
    wait_for(lambda: listens(port), f"somebody listens at port {port}")


CALLS = {call.__name__: call for call in (must, read, gid, await_listener, is_function)}


def _execute(argv, seconds, connection):
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        ended = os.pidfd_open(process.pid)
        try:
            # Nothing is sent on the connection any more: it becomes readable when it ends.
            late = not select.select([ended, connection], [], [], seconds * SLOW)[0]
        finally:
            os.close(ended)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
        return {"status": process.returncode, "output": text + (f"\nnot done within {seconds * SLOW} s" if late else "")}


def _serve(connection):
    with connection, connection.makefile("rw") as file:
        request = json.loads(file.readline())
        if "argv" in request:
            answer = _execute(request["argv"], request["seconds"], connection)
        else:
            try:
                answer = {"value": CALLS[request["call"]](*request["arguments"])}
            except (Failure, OSError) as failure:
                answer = {"failure": str(failure)}
        with contextlib.suppress(OSError):
            file.write(json.dumps(answer) + "\n")
            file.flush()


def serve(port):
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        while True:
            threading.Thread(target=_serve, args=(server.accept()[0],), daemon=True).start()


class Running:
    """A program that runs at a node."""

    def __init__(self, node, argv, seconds):
        self.node, self.argv, self.connection = node, argv, node.ask({"argv": argv, "seconds": seconds})

    def wait(self):
        """Wait until it has ended; returns its status and its output."""
        with self.connection, self.connection.makefile() as file:
            answer = json.loads(file.readline())
        return answer["status"], answer["output"]

    def has_ended(self):
        return bool(select.select([self.connection], [], [], 0)[0])

    def told(self, status, output):
        """How it ended, for a message."""
        return f"{self.node.name}: {' '.join(self.argv)}: status {status}\n{output}"

    def kill(self):
        self.connection.close()


class Node:
    """The test's side of a node."""

    def __init__(self, name, address, device, link, port=PORT):
        self.name, self.address, self.device, self.link, self.port = name, address, device, link, port

    def ask(self, request):
        end = time.monotonic() + 30 * SLOW
        while True:
            try:
                connection = socket.create_connection((self.address, self.port))
                break
            except OSError as error:
                check(time.monotonic() < end, f"{self.name} does not answer: {error}")
                time.sleep(0.1)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection

    def call(self, name, *arguments):
        """Call one of the functions of `CALLS` there."""
        with self.ask({"call": name, "arguments": arguments}) as connection, connection.makefile() as file:
            answer = json.loads(file.readline())
        check("failure" not in answer, f"{self.name}: {answer.get('failure')}")
        return answer["value"]

    def must(self, *words):
        return self.call("must", *(str(word) for word in words))

    def start(self, *words, seconds=60):
        return Running(self, [str(word) for word in words], seconds)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
