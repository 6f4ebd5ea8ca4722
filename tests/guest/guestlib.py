# SPDX-License-Identifier: GPL-2.0
"""What the guest's Python tests share: TAP, commands, a device's GID, a server and its client."""

import os
import signal
import subprocess
import sys
import time

SLOW = int(os.environ.get("TEST_SLOW", "1"))


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


def read(path):
    with open(path) as file:
        return file.read().strip()


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


_port = 18600


def server_and_client(server, client, seconds=30):
    """Run a server with -p PORT and, once it listens, its client with the server's address; both have to succeed.

    Returns what both printed.
    """
    global _port
    _port += 1
    server = [*(str(word) for word in server), "-p", str(_port)]
    client = [*(str(word) for word in client), "-p", str(_port), "127.0.0.1"]
    with subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as process:
        try:
            wait_for(lambda: listens(_port) or process.poll() is not None, f"{server[0]} listens")
            status, told = run(*client, seconds=seconds)
            try:
                answer, _ = process.communicate(timeout=10 * SLOW if status == 0 else 2)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                answer, _ = process.communicate()
                check(status != 0, f"{' '.join(server)}: did not end\n{answer}")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    check(status == 0, f"{' '.join(client)}: status {status}\n{told}\nits server:\n{answer}")
    check(process.returncode == 0, f"{' '.join(server)}: status {process.returncode}\n{answer}")
    return answer, told
