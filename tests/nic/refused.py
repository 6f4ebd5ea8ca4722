#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Functions that the driver refuses, each with one line in the kernel's log; nothing is left, and another guest of the process
goes on (TAP)."""

import re
from contextlib import ExitStack, contextmanager

# It says where guestlib and labkit are.
from deaths import Unshared
from guests import Host
from other import Other

from guestlib import Tap, check
from labkit import backend, nic

OTHER, PLAIN = "other.sock", "plain.sock"

ADDRESS = "0000:01:00.0"
LOAD = """
modprobe -a rdma_ucm ib_umad
dmesg --clear
/run/lab/load /ferrule/module/ferrule.ko
dmesg
"""

# The function comes when its network device is taken.
BIND_LATE = f"""
/run/lab/load /ferrule/module/ferrule.ko
echo {ADDRESS} >/sys/bus/pci/drivers/ferrule/unbind
rdma link add taken0 type ferrule netdev dummy0
dmesg --clear
! echo {ADDRESS} >/sys/bus/pci/drivers/ferrule/bind || echo bound
rdma link delete taken0
dmesg
"""

# Prints nothing where no driver has the function.
TRACES = f"""
ls /sys/class/infiniband
[ ! -e /sys/bus/pci/devices/{ADDRESS}/driver ] || echo driver
grep ferrule /proc/interrupts /proc/iomem
ls /sys/bus/pci/devices/{ADDRESS}/msi_irqs 2>/dev/null
true
"""
COMMAND = f"od -An -tx2 -j 4 -N 2 /sys/bus/pci/devices/{ADDRESS}/config"
MASTER = 1 << 2

# Registers, by the datasheet (Documentation/nic.md of the driver), and the bits of `FEATURES` that the driver needs.
MAGIC, VERSION, FEATURES, STATUS = range(0, 0x10, 4)
ALL_FEATURES, NEEDED = 0x3f, 0x3d
# The version of the registers and rings.
KNOWN = 4


class Served(backend.Nic):
    """A ferrule-nic with one more guest, whose function belongs to no network device."""

    def _more(self, first):
        return [*super()._more(first), f"--guest={nic.RUN}/{PLAIN}"]


class At(backend.Nic):
    """Guests whose function is at another socket."""

    def __init__(self, socket):
        super().__init__()
        self._socket = socket

    def function(self, node):
        return [word.replace(nic.socket(node), self._socket) for word in super().function(node)]


@contextmanager
def guest_on(served, host):
    """A guest on one of the process's sockets, without a driver."""
    one = host.guest(1, device="none", backend=served)
    try:
        one.booted()
        yield one
    finally:
        one.die()


def told(log):
    """The driver's lines of a kernel's log, and the driver core's of the function."""
    return re.findall(rf"{re.escape(ADDRESS)}: (?!enabling device)(.*)", log)


def refused(host, one, other, line, script=LOAD):
    """The driver refuses the function with this line alone, and can go; the other guest's function works."""
    lines = told(one.run("sh", "-c", script))
    check(len(lines) == 1 and line in lines[0], f"not one line with {line!r}: {lines}")
    left = one.run("sh", "-c", TRACES)
    check(left == "", f"it has left: {left}")
    check(int(one.run("sh", "-c", COMMAND), 16) & MASTER == 0, "the function is bus master")
    one.run("rmmod", "ferrule")
    check(host.process.alive(), "the process is gone")
    works(other)


def works(one):
    one.run("/ferrule/build/tests/rc_data", "--only", "send_sizes", "ferrule0")


def taken(one):
    """The driver takes the function, with no line, and it works."""
    lines = told(one.run("sh", "-c", LOAD))
    check(not lines, f"the driver says: {lines}")
    works(one)
    one.run("rmmod", "ferrule")


def of_another_kind(tap, host, other):
    proxy = Other(host.directory / OTHER, host.directory / nic.socket(1))
    with guest_on(At(OTHER), host) as one:
        def case(name, registers, line):
            proxy.registers = registers
            tap.case(name, refused, host, one, other, line)

        case("of_another_device", {MAGIC: 0x12345678}, "magic 0x12345678")
        for version in (KNOWN - 1, KNOWN + 1):
            case(f"of_version_{version}", {VERSION: version}, f"version {version}: this driver knows version {KNOWN}")
        for bit in (1 << number for number in range(ALL_FEATURES.bit_length()) if NEEDED >> number & 1):
            case(f"without_feature_{bit:#x}", {FEATURES: ALL_FEATURES & ~bit}, f"it lacks {bit:#x}")
        case("not_ready", {STATUS: 0}, "status 0x0: it is not ready")
        case("silent", {MAGIC: 0xffffffff}, "it does not answer")
        proxy.registers = {FEATURES: NEEDED | 1 << 31}
        tap.case("with_features_that_nobody_needs", taken, one)
        proxy.registers = {}
        tap.case("as_it_is", taken, one)
        tap.case("its_network_device_is_taken", refused, host, one, other, "dummy0: has a ferrule device already", BIND_LATE)
        tap.case("kernel_is_well", one.check_kernel)


def memory_that_is_not_shared(host, other):
    with guest_on(Unshared(), host) as one:
        refused(host, one, other, "the machine's has to be shared (QEMU: share=on)")
        one.check_kernel()


def of_no_network_device(host, other):
    with guest_on(At(PLAIN), host) as one:
        refused(host, one, other, "it belongs to no network device")
        one.check_kernel()


def main():
    tap = Tap()
    with ExitStack() as stack:
        host = Host(Served(), stack, "ferrule")
        other = host.guest(2)
        other.booted()
        of_another_kind(tap, host, other)
        for case in (memory_that_is_not_shared, of_no_network_device):
            tap.case(case.__name__, case, host, other)
        tap.case("the_other_guest_is_well", other.check_kernel)
    tap.end()


if __name__ == "__main__":
    main()
