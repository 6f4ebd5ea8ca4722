# SPDX-License-Identifier: GPL-2.0
"""The backends of a guest's device: the driver itself, or a PCI function beside QEMU."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import nic
from .arch import Arch


class Soft:
    """The driver's own engine, on a network device of the guest."""

    # The tree that has QEMU, if it is not the build tree.
    qemu: Path | None = None

    # The fewest processors that a guest may have.
    processors = 1

    def guest_device(self, _node: int, device: str) -> str:
        """A node's word for a device of the command line."""
        return device

    def machine(self, _mem: int, arch: Arch) -> list[str]:
        """QEMU's words for the machine and its memory."""
        return ["-machine", arch.machine]

    def function(self, _node: int) -> list[str]:
        """QEMU's words for a node's other devices."""
        return []

    def ethernet(self, _node: int, cable: socket.socket | None) -> str | None:
        """QEMU's words for the other end of a node's Ethernet port, if it has one: `cable` goes to the other node."""
        return f"addr.type=fd,addr.str={cable.fileno()}" if cable else None

    @contextmanager
    def beside(self, _directory: Path, _nodes: int) -> Iterator[list[nic.Process]]:
        """The processes that run beside the nodes of a run."""
        yield []


class Nic(Soft):
    """A PCI function of ferrule-nic for each guest, or for some of them; the Ethernet of all is its switch."""

    # With one processor neither QEMU nor Linux makes the guest's atomic operations atomic for another process.
    processors = 2

    def __init__(self, nodes: Iterable[int] = (1, 2), linked: bool = False, wire_only: bool = False):
        """`nodes` have a function; `linked`: each node has a process of its own, and the processes a link; `wire_only`: no
        queue pair reaches another but by packets."""
        self.qemu = nic.qemu()
        self.program = nic.build()
        self.nodes, self.linked, self.wire_only = set(nodes), linked, wire_only

    def guest_device(self, node: int, device: str) -> str:
        return "ferrule-nic" if device == "ferrule" and node in self.nodes else device

    def machine(self, mem: int, _arch: Arch) -> list[str]:
        return nic.machine(mem)

    def function(self, node: int) -> list[str]:
        return nic.function(node) if node in self.nodes else []

    def ethernet(self, node: int, cable: socket.socket | None) -> str | None:
        return f"addr.type=unix,addr.path={nic.RUN}/{nic.net(node)}" if cable else None

    @contextmanager
    def beside(self, directory: Path, nodes: int) -> Iterator[list[nic.Process]]:
        everybody = range(1, nodes + 1)
        with ExitStack() as at_end:
            processes = []
            for some in [[node] for node in everybody] if self.linked else [everybody]:
                processes.append(nic.Process(self.program, directory, some, self._more(some[0])))
                at_end.callback(processes[-1].end)
            yield processes

    def _more(self, first: int) -> list[str]:
        """More words for a process, whose first node this is."""
        link = [f"--link={'listen' if first == 1 else 'connect'}={nic.RUN}/link.sock"] if self.linked else []
        return [*link, *(["--wire-only"] if self.wire_only else [])]


NAMES = ("soft", "nic")


def choose(names: list[str], linked: bool = False, wire_only: bool = False) -> Soft:
    """The backend of a run whose nodes have the backends of these names."""
    nodes = [node for node, name in enumerate(names, 1) if name == "nic"]
    return Nic(nodes, linked, wire_only) if nodes else Soft()
