#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The PCI function of ferrule-nic in a guest, by its datasheet (Documentation/nic.md of the driver), without a driver."""

import ctypes

from guestlib import Tap, check, must, read
from pcifunction import (CHECK, CHECK_ADDRESS, CHECK_NONCE, COMMAND_ADDRESS, COMMAND_DONE, FEATURES, MAC_HIGH, MAC_LOW,
                         MAGIC, NO_MASTER, NO_MEMORY, NOT_RUN, NOT_SHARED, REGISTERS_SIZE, RESET, SHARED, STATUS,
                         VECTORS, VERSION, Function, Page, load, store)

EXPRESS, MSIX = 0x10, 0x11
READY, FOUND_SHARED = 1, 2


def equal(found, wanted, what):
    check(found == wanted, f"{what}: {found}, not {wanted}")


def identity(function):
    for name, wanted in (("vendor", "0x1af4"), ("device", "0x10f1"), ("subsystem_vendor", "0x1af4"),
                         ("subsystem_device", "0x4645"), ("class", "0x020700"), ("revision", "0x04"), ("irq", "0")):
        equal(function.attribute(name), wanted, name)


def link(function):
    for kind in ("current", "max"):
        equal(function.attribute(f"{kind}_link_speed"), "16.0 GT/s PCIe", f"{kind} speed")
        equal(function.attribute(f"{kind}_link_width"), "16", f"{kind} width")
    # The low four bits: version 2, an endpoint.
    equal(function.config(function.capability(EXPRESS) + 2, 1), 0x02, "kind of PCI Express")


def interrupts(function):
    at = function.capability(MSIX)
    equal(function.config(at + 2, 2) & 0x7ff, 31, "last vector")
    equal((function.config(at + 4, 4), function.config(at + 8, 4)), (4, 0x800 | 4), "table and pending bits, in BAR4")


def bars(function):
    rows = [[int(word, 16) for word in line.split()] for line in function.attribute("resource").splitlines()]
    sizes = [end - start + 1 if end else 0 for start, end, _ in rows[:7]]
    equal(sizes, [REGISTERS_SIZE, 0, 0, 0, 4096, 0, 0], "sizes of BARs and ROM")
    # Of <linux/ioport.h>: memory, prefetchable, 64 bits.
    memory, prefetch, wide = 0x200, 0x2000, 0x100000
    kinds = [flags & (memory | prefetch | wide) for _, _, flags in rows[:6]]
    equal(kinds, [memory, 0, 0, 0, memory, 0], "kinds of BARs")


def registers(function):
    for offset, wanted, what in ((MAGIC, int.from_bytes(b"FRUL", "little"), "MAGIC"), (VERSION, 4, "VERSION"),
                                 (VECTORS, 32, "VECTORS"), (COMMAND_DONE, 0, "COMMAND: none was answered")):
        equal(function.peek(offset), wanted, what)
    equal(function.peek(FEATURES) & 15, 15, "FEATURES: memory check, RAISE, commands, fast registration")
    equal(function.peek(STATUS) & READY, READY, "STATUS: ready")
    equal(function.peek(REGISTERS_SIZE - 4), 0, "where there is no register")


def mac_address(function):
    """That of the guest's network device, as the lab gives it."""
    mac = function.peek(MAC_LOW).to_bytes(4, "little") + function.peek(MAC_HIGH).to_bytes(4, "little")
    equal(mac, bytes.fromhex(read("/sys/class/net/dummy0/address").replace(":", "")) + bytes(2), "MAC address")


def read_only(function):
    for offset in (MAGIC, VERSION, VECTORS, MAC_LOW, MAC_HIGH):
        before = function.peek(offset)
        function.poke(offset, ~before & 0xffffffff)
        equal(function.peek(offset), before, f"register {offset:#x} after a write")


def widths(function):
    """A register is accessed whole; 8 bytes are two of them."""
    function.poke(CHECK_NONCE, 0x0123456789abcdef, ctypes.c_uint64)
    equal((function.peek(CHECK_NONCE), function.peek(CHECK_NONCE + 4)), (0x89abcdef, 0x01234567), "halves")
    equal(function.peek(CHECK_NONCE, ctypes.c_uint64), 0x0123456789abcdef, "both")
    for kind, ones in ((ctypes.c_uint8, 0xff), (ctypes.c_uint16, 0xffff)):
        function.poke(CHECK_NONCE, 0, kind)
        equal(function.peek(CHECK_NONCE, kind), ones, f"{ctypes.sizeof(kind)} bytes")
    equal(function.peek(CHECK_NONCE), 0x89abcdef, "after narrow writes")


def is_as_new(function):
    for offset in (CHECK_ADDRESS, CHECK_ADDRESS + 4, CHECK_NONCE, CHECK_NONCE + 4, CHECK, COMMAND_ADDRESS,
                   COMMAND_ADDRESS + 4):
        equal(function.peek(offset), 0, f"register {offset:#x}")
    equal(function.peek(STATUS) & (READY | FOUND_SHARED), READY, "STATUS")


def use(function):
    """Leave something everywhere that a reset has to clear."""
    function.master(True)
    equal(function.check_memory(), (SHARED, True), "memory check")
    store(function, 1)


def register_reset(function):
    use(function)
    before = function.config(0, 4), function.config(4, 2), function.config(0x10, 4), function.config(0x20, 4)
    function.poke(RESET, 1)
    is_as_new(function)
    after = function.config(0, 4), function.config(4, 2), function.config(0x10, 4), function.config(0x20, 4)
    equal(after, before, "configuration space")


def function_level_reset(function):
    equal(function.attribute("reset_method").split()[:1], ["flr"], "first method")
    use(function)
    function.write_attribute("reset", "1")
    # Linux has put the BARs back, so the same mappings work.
    is_as_new(function)
    store(function, 7)
    equal(load(function), 7, "what it keeps")
    equal(function.peek(MAGIC), int.from_bytes(b"FRUL", "little"), "MAGIC")


def memory_is_shared(function):
    function.poke(RESET, 1)
    function.master(True)
    equal(function.peek(CHECK), NOT_RUN, "before the check")
    for _ in range(20):
        equal(function.check_memory(), (SHARED, True), "memory check")
    equal(function.peek(STATUS) & FOUND_SHARED, FOUND_SHARED, "STATUS")


def memory_check_refuses(function):
    function.master(True)
    page = Page()
    page.set(0, 1)
    equal(function.run_check(page.address(), 2), NOT_SHARED, "another word")
    for address in (1 << 40, (1 << 64) - 8, (1 << 64) - 1):
        equal(function.run_check(address, 1), NO_MEMORY, f"address {address:#x}")
    equal(page.get(1), 0, "the word behind")
    function.master(False)
    equal(function.run_check(page.address(), 1), NO_MASTER, "no bus master")
    equal(page.get(1), 0, "the word behind")


def nothing_in_the_log(function):
    """Neither the PCI core nor AER has complained of the function."""
    name = function.path.rsplit("/", 1)[-1]
    lines = [line for line in must("dmesg", "--level=emerg,alert,crit,err,warn").splitlines() if name in line]
    check(not lines, "\n".join(lines))
    equal(read(f"{function.path}/power_state"), "D0", "power state")


def main():
    tap = Tap()
    function = Function()
    for case in (identity, link, interrupts, bars, registers, mac_address, read_only, widths, memory_is_shared,
                 memory_check_refuses, register_reset, function_level_reset, nothing_in_the_log):
        tap.case(case.__name__, case, function)
    tap.end()


main()
