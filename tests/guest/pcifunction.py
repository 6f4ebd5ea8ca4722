#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The PCI function of ferrule-nic as a program reaches it by sysfs, without a driver.

usage: pcifunction.py peek OFFSET       a register
       pcifunction.py store VALUE       something that the function keeps for this guest
       pcifunction.py load              that
       pcifunction.py memory            what comes of the memory check
"""

import ctypes
import mmap
import os
import secrets
import struct
import sys

from guestlib import Failure, check, read

VENDOR, DEVICE = "0x1af4", "0x10f1"

# Registers, by the datasheet (Documentation/nic.md of the driver).
MAGIC, VERSION, FEATURES, STATUS, RESET, VECTORS, MAC_LOW, MAC_HIGH = range(0, 0x20, 4)
CHECK_ADDRESS, CHECK_NONCE, CHECK, RAISE = 0x20, 0x28, 0x30, 0x34
COMMAND_ADDRESS, COMMAND_DONE, KICK = 0x40, 0x48, 0x4c

# The results of the memory check.
NOT_RUN, SHARED, NOT_SHARED, NO_MEMORY, NO_MASTER = range(5)

COMMAND = 4
COMMAND_MASTER = 1 << 2

PAGE = mmap.PAGESIZE
REGISTERS_SIZE = 4096


def find():
    """The directories of all such functions."""
    top = "/sys/bus/pci/devices"
    return [f"{top}/{name}" for name in sorted(os.listdir(top))
            if (read(f"{top}/{name}/vendor"), read(f"{top}/{name}/device")) == (VENDOR, DEVICE)]


class Function:
    """The guest's function, enabled, with its registers mapped."""

    def __init__(self):
        found = find()
        check(len(found) == 1, f"functions: {found}")
        self.path = found[0]
        self.write_attribute("enable", "1")
        self._registers = self._map("resource0", REGISTERS_SIZE)

    def _map(self, name, size):
        descriptor = os.open(f"{self.path}/{name}", os.O_RDWR | os.O_SYNC)
        try:
            return mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def attribute(self, name):
        return read(f"{self.path}/{name}")

    def write_attribute(self, name, text):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(text)

    def config(self, offset, size):
        """A number in the configuration space."""
        with open(f"{self.path}/config", "rb", buffering=0) as file:
            return int.from_bytes(os.pread(file.fileno(), size, offset), "little")

    def write_config(self, offset, size, value):
        with open(f"{self.path}/config", "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), value.to_bytes(size, "little"), offset)

    def capability(self, identifier):
        """Where a capability is in the configuration space."""
        at = self.config(0x34, 1)
        while at:
            if self.config(at, 1) == identifier:
                return at
            at = self.config(at + 1, 1)
        raise Failure(f"there is no capability {identifier:#x}")

    def peek(self, offset, kind=ctypes.c_uint32):
        """A register, by one access as wide as the kind of number."""
        return kind.from_buffer(self._registers, offset).value

    def poke(self, offset, value, kind=ctypes.c_uint32):
        kind.from_buffer(self._registers, offset).value = value

    def master(self, on):
        """Let the function reach memory, or not."""
        command = self.config(COMMAND, 2) & ~COMMAND_MASTER
        self.write_config(COMMAND, 2, command | (COMMAND_MASTER if on else 0))

    def run_check(self, address, nonce):
        """Run the memory check for an address; returns its result."""
        self.poke(CHECK_ADDRESS, address & 0xffffffff)
        self.poke(CHECK_ADDRESS + 4, address >> 32)
        self.poke(CHECK_NONCE, nonce & 0xffffffff)
        self.poke(CHECK_NONCE + 4, nonce >> 32)
        self.poke(CHECK, 1)
        return self.peek(CHECK)

    def check_memory(self):
        """The result of the memory check in a page of this process, and whether the device has answered there."""
        nonce = secrets.randbits(64)
        page = Page()
        page.set(0, nonce)
        outcome = self.run_check(page.address(), nonce)
        return outcome, page.get(1) == nonce ^ 0xffffffffffffffff


class Page:
    """A page of this process that stays where it is."""

    def __init__(self):
        self._map = mmap.mmap(-1, PAGE)
        self._words = (ctypes.c_uint64 * (PAGE // 8)).from_buffer(self._map)
        libc = ctypes.CDLL(None, use_errno=True)
        check(libc.mlock(self._words, ctypes.c_size_t(PAGE)) == 0, "mlock")

    def address(self):
        """Its physical address, which only root learns."""
        with open("/proc/self/pagemap", "rb") as file:
            entry, = struct.unpack("<Q", os.pread(file.fileno(), 8, ctypes.addressof(self._words) // PAGE * 8))
        check(entry >> 63 and entry & (1 << 55) - 1, f"the page is not there: {entry:#x}")
        return (entry & (1 << 55) - 1) * PAGE

    def get(self, number):
        return self._words[number]

    def set(self, number, value):
        self._words[number] = value


def store(function, value):
    """Give the function something to keep: the address for commands."""
    function.poke(COMMAND_ADDRESS, value, ctypes.c_uint64)


def load(function):
    return function.peek(COMMAND_ADDRESS, ctypes.c_uint64)


def main(what, *values):
    function = Function()
    if what == "peek":
        print(f"{function.peek(int(values[0], 0)):#x}")
    elif what == "store":
        store(function, int(values[0], 0))
    elif what == "load":
        print(hex(load(function)))
    elif what == "memory":
        function.master(True)
        outcome, answered = function.check_memory()
        print(outcome, answered)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
