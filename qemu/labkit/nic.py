# SPDX-License-Identifier: GPL-2.0
"""ferrule-nic, which has a PCI function for each guest, as a process of a run; and the QEMU that knows such functions."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from . import cache, debian, suite, tree
from .errors import LabError
from .ui import Step, tail

CRATE = tree.CHECKOUT / "qemu/nic"

# Debian 13's own QEMU knows no vfio-user.
PACKAGES = [suite.CHOSEN.newest(name) for name in ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")]

# The least that qemu/nic/README.md asks for; vfio-user came with 10.1.
LEAST_QEMU = (10, 1, 1)

START_SECONDS = 20

# So long the program has to end when it is told to. One that has not is killed, and that is a fault of its own.
END_SECONDS = 3

# The first process of the program's namespace. When the program has ended, it waits for the others there: the keeper, which
# ends the connections of a program that has died.
FIRST = '"$@" & wait $!; status=$?; while kill -0 -1 2>/dev/null; do sleep 0.02; done; exit $status'

# The name of a node's function in QEMU.
FUNCTION = "ferrule"

# The directory of a run, at the one path by which a node's QEMU and the process both know it.
RUN = "/run/lab"


def version_of(text: str) -> tuple[int, ...]:
    """The version in what `qemu-system-x86_64 --version` prints."""
    found = re.match(r"QEMU emulator version (\d+(?:\.\d+)*)", text)
    if not found:
        raise LabError(f"QEMU does not tell its version: {text.splitlines()[:1]}")
    return tuple(map(int, found[1].split(".")))


def check_version(text: str) -> None:
    """See that QEMU is new enough, by what it prints of its version."""
    version = version_of(text)
    if version < LEAST_QEMU:
        raise LabError(f"this QEMU is {_dotted(version)}, but --backend nic needs {_dotted(LEAST_QEMU)}: FERRULE_MIRROR "
                       f"has to name a mirror whose {suite.CHOSEN.pockets[-1]} has a newer one")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def qemu() -> Path:
    """The tree with a QEMU that is new enough, made first where it is not there yet."""

    def build(directory: Path, step: Step) -> None:
        debian.bootstrap(directory / "root", PACKAGES, step)
        check_version(tree.output(["qemu-system-x86_64", "--version"], root=directory / "root"))

    inputs = {"suite": debian.SUITE, "packages": PACKAGES, "layout": 1}
    return cache.entry("qemu", inputs, "making the tree of a newer QEMU (about half a minute, 0.3 GB)", build) / "root"


def build() -> Path:
    """Compile what has changed of ferrule-nic; returns the program's path in the build tree."""
    target = tree.environment()["CARGO_TARGET_DIR"]
    name = f"nic-{cache.digest(str(tree.CHECKOUT))}"
    with cache.lock(name), Step("building ferrule-nic", cache.log_file(name)) as step:
        tree.run(step, ["cargo", "build", "--locked", "--release", "--bin", "ferrule-nic"], cwd=CRATE)
    return Path(target, "release/ferrule-nic")


def socket(node: int) -> str:
    """The name of a node's socket in the directory of a run."""
    return f"node{node}.sock"


def net(node: int) -> str:
    """The name of the socket of a node's Ethernet port, which is one of the process's switch."""
    return f"node{node}.net"


def machine(mem: int) -> list[str]:
    """QEMU's words for a machine whose memory the process can map."""
    return ["-machine", "q35,memory-backend=ram", "-object", f"memory-backend-memfd,id=ram,size={mem}M,share=on"]


def function(node: int) -> list[str]:
    """QEMU's words for the function of a node, in a slot as fast as the function says that it is."""
    # A reply that is late breaks the connection for good, and a busy host may take long.
    words = {"driver": "vfio-user-pci", "bus": "nic", "id": FUNCTION, "rombar": 0, "x-msg-timeout": 60000,
             "socket": {"type": "unix", "path": f"{RUN}/{socket(node)}"}}
    return ["-device", "pcie-root-port,id=nic,bus=pcie.0,chassis=1,slot=1,x-speed=16,x-width=16",
            "-device", json.dumps(words)]


def mac(node: int) -> str:
    """The address of the network device that a node's function belongs to."""
    return f"52:54:00:77:00:{node:02x}"


class Process:
    """ferrule-nic, beside some nodes of a run."""

    def __init__(self, program: Path, directory: Path, nodes: Sequence[int], more: Sequence[str] = ()):
        self.log = directory / f"nic{nodes[0] if nodes[0] > 1 else ''}.log"
        sockets = [f"--guest={RUN}/{socket(node)},mac={mac(node)},net={RUN}/{net(node)}" for node in nodes]
        with self.log.open("wb") as log:
            # A lab that is killed leaves no process behind.
            command = tree.command(["sh", "-c", FIRST, "sh", program, *sockets, *more], [(directory, RUN)])
            self._process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log, env=tree.environment(), start_new_session=True)
        self.pid = self._process.pid
        self._is_meant = False
        self.death = os.pidfd_open(self.pid)
        try:
            self._wait_for(len(nodes))
        except BaseException:
            self.end()
            raise

    def _wait_for(self, nodes: int) -> None:
        """QEMU connects when it starts, so all sockets have to listen by then."""
        deadline = time.monotonic() + START_SECONDS
        while self.log.read_text(errors="replace").count("waits for a client") < nodes:
            if self._process.poll() is not None:
                raise LabError(self.last_words())
            if time.monotonic() > deadline:
                raise LabError(f"ferrule-nic does not listen after {START_SECONDS} s; the end of its log:\n{tail(self.log)}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the program at once, as a fault of its own would. Its keeper ends after it."""
        self._is_meant |= self.alive()
        self._send(signal.SIGKILL)
        self._process.wait()

    def _send(self, number: int) -> None:
        """Send a signal to the program. If it has ended, those get it that its namespace waits for: the keeper ignores it."""
        for first in _children(self.pid):
            for program in _children(first):
                with suppress(ProcessLookupError):
                    os.kill(program, number)

    def alive(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        """How it ended, for a person."""
        return f"ferrule-nic has ended with status {self._process.wait()}; the end of its log:\n{tail(self.log)}"

    def fault(self) -> str | None:
        """A fault of its own, for a person: it has ended, or one of its threads has."""
        if not self._is_meant and not self.alive():
            return self.last_words()
        panics = [line for line in self.log.read_text(errors="replace").splitlines() if "panicked at" in line]
        return f"ferrule-nic has panicked: {panics[0]}; the end of its log:\n{tail(self.log)}" if panics else None

    def end(self) -> None:
        """End the program. Its status tells whether it was well until then, since its namespace may outlive it."""
        try:
            if self.alive():
                self._send(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self._is_meant |= self._process.wait(END_SECONDS) == 0
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self.death)


def _children(parent: int) -> list[int]:
    """The numbers of a process's children."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while we look. Its name may have spaces and brackets.
        with suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
