# SPDX-License-Identifier: GPL-2.0
"""What carries out the work of a guest's device: the driver itself, or a PCI function beside QEMU."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import nic


class Soft:
    """The driver's own engine, on a network device of the guest."""

    # The tree that has QEMU, if it is not the build tree.
    qemu: Path | None = None

    # The fewest processors that a guest may have.
    processors = 1

    def guest_device(self, device: str) -> str:
        """What a guest is told to bring up for a device of the command line."""
        return device

    def machine(self, _mem: int) -> list[str]:
        """QEMU's words for the machine and its memory."""
        return ["-machine", "q35"]

    def function(self, _node: int) -> list[str]:
        """QEMU's words for what a node has besides."""
        return []

    def ethernet(self, _node: int, cable: socket.socket | None) -> str | None:
        """QEMU's words for the other end of a node's Ethernet port, if it has one: `cable` goes to the other node."""
        return f"stream,id=net,server=off,addr.type=fd,addr.str={cable.fileno()}" if cable else None

    @contextmanager
    def beside(self, _directory: Path, _nodes: int) -> Iterator[nic.Process | None]:
        """The process that runs beside the nodes of a run, if there is one."""
        yield None


class Nic(Soft):
    """A PCI function of ferrule-nic for each guest."""

    # With one processor neither QEMU nor Linux makes the guest's atomic operations atomic for another process.
    processors = 2

    def __init__(self):
        self.qemu = nic.qemu()
        self.program = nic.build()

    def guest_device(self, device: str) -> str:
        return "ferrule-nic" if device == "ferrule" else device

    def machine(self, mem: int) -> list[str]:
        return nic.machine(mem)

    def function(self, node: int) -> list[str]:
        return nic.function(node)

    def ethernet(self, node: int, cable: socket.socket | None) -> str | None:
        """The function belongs to a network device, so a node that is alone has one, too, with nobody at the other end."""
        return super().ethernet(node, cable) or "hubport,id=net,hubid=0"

    @contextmanager
    def beside(self, directory: Path, nodes: int) -> Iterator[nic.Process | None]:
        process = nic.Process(self.program, directory, nodes)
        try:
            yield process
        finally:
            process.end()


NAMES = {"soft": Soft, "nic": Nic}
