#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A kernel user for real: NVMe over RDMA, Linux's target (nvmet-rdma) at one node and its host (nvme-rdma) at this one.

usage: nvme.py DEVICE PEER_DEVICE    two guests, node 2 runs node.py
       nvme.py DEVICE                target and host in this guest
       nvme.py host ADDRESS          what the test has done by the host at another node
"""

import contextlib
import glob
import mmap
import os
import random
import re
import sys
import threading
import time

import node
from guestlib import PREEMPT_RT, SLOW, Failure, Skip, Tap, check, must, wait_for
from node import PORT, Node

NQN = "nqn.2026-11.ferrule:test"
SIZE = 64 << 20
# Of the disk, since that is what the file system of its file has.
BLOCK = 4096
CONFIG = "/sys/kernel/config/nvmet"

# The target listens at all addresses: at one of them it would not any more once the device has gone, and come again.
SET_UP = f"""
set -e
modprobe -r nvmet-rdma
modprobe nvmet-rdma "$@"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
mkdir -p /run/nvme
mount -t tmpfs -o size=80m none /run/nvme
truncate -s {SIZE} /run/nvme/disk
cd {CONFIG}
mkdir subsystems/{NQN} subsystems/{NQN}/namespaces/1 ports/1
echo 1 > subsystems/{NQN}/attr_allow_any_host
echo /run/nvme/disk > subsystems/{NQN}/namespaces/1/device_path
echo 1 > subsystems/{NQN}/namespaces/1/enable
echo rdma > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo 0.0.0.0 > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s {CONFIG}/subsystems/{NQN} ports/1/subsystems/
"""

TEAR_DOWN = f"""
cd {CONFIG}
rm -f ports/1/subsystems/{NQN}
rmdir ports/1
echo 0 > subsystems/{NQN}/namespaces/1/enable
rmdir subsystems/{NQN}/namespaces/1 subsystems/{NQN}
umount /run/nvme
"""


@contextlib.contextmanager
def target(there, *parameters):
    """A target whose module has these parameters."""
    there.must("sh", "-c", SET_UP, "sh", *parameters)
    try:
        yield
    finally:
        there.must("sh", "-c", TEAR_DOWN)


def connect(there, **options):
    """Connect; returns the controller and its disk."""
    words = {"transport": "rdma", "traddr": there.link, "trsvcid": 4420, "nqn": NQN, "reconnect_delay": 1,
             "ctrl_loss_tmo": 5, **options}
    # The kernel answers with the number of the controller on the same file.
    with open("/dev/nvme-fabrics", "r+b", buffering=0) as fabrics:
        fabrics.write(",".join(f"{key}={value}" for key, value in words.items()).encode())
        answer = dict(word.split("=") for word in fabrics.read(256).decode().strip("\n\0").split(","))
    name = f"nvme{answer['instance']}"
    wait_for(lambda: disks(), f"{name} has a disk")
    return name, disks()[0]


def disks():
    return [path for path in glob.glob("/dev/nvme*n*") if "fabrics" not in path]


def disconnect(name, seconds=10):
    begin = time.monotonic()
    with contextlib.suppress(FileNotFoundError), open(f"/sys/class/nvme/{name}/delete_controller", "w") as file:
        file.write("1")
    wait_for(lambda: not os.path.exists(f"/sys/class/nvme/{name}"), f"{name} is gone")
    check(time.monotonic() - begin < seconds * SLOW, f"to disconnect took {time.monotonic() - begin:.1f} s")


@contextlib.contextmanager
def connected(there, **options):
    name, disk = connect(there, **options)
    try:
        yield disk
    finally:
        disconnect(name)


def pattern(seed, length):
    return random.Random(seed).randbytes(length)


class Disk:
    """A disk without the page cache: data come from the target."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR | os.O_DIRECT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)

    # Anonymous memory begins at a page's boundary; `skip` bytes of it are left out. Direct I/O asks for less: the
    # alignment that the driver has named.

    def write(self, offset, data, skip=0):
        with mmap.mmap(-1, skip + len(data)) as pages, memoryview(pages) as whole, whole[skip:] as memory:
            memory[:] = data
            check(os.pwrite(self.file, memory, offset) == len(data), f"a write at {offset} was short")

    def read(self, offset, length, skip=0):
        with mmap.mmap(-1, skip + length) as pages, memoryview(pages) as whole, whole[skip:] as memory:
            check(os.preadv(self.file, [memory], offset) == length, f"a read at {offset} was short")
            return bytes(memory)


def sizes(disk):
    """Each size from a block up to what one request can have, and more."""
    for number, blocks in enumerate((1, 2, 7, 8, 9, 31, 32, 33, 64, 127, 256, 1024)):
        length, offset = blocks * BLOCK, number << 22
        for skip in (0, 512, 3584):
            data = pattern(number << 12 | skip, length)
            disk.write(offset, data, skip)
            check(disk.read(offset, length, skip) == data, f"{length} bytes, {skip} behind a page's start, differ")


def many_at_once(disk):
    """Eight threads write and read, each its own part, and know what has to be there."""
    failures = []

    def work(number):
        chooser, known = random.Random(number), {}
        try:
            for round_number in range(40):
                slot, blocks = chooser.randrange(16), chooser.choice((1, 2, 8, 33, 64))
                offset, length = (number << 23) + (slot << 18), blocks * BLOCK
                data = pattern(number << 8 | round_number, length)
                disk.write(offset, data)
                known[slot] = offset, data
                offset, data = known[chooser.choice(list(known))]
                check(disk.read(offset, len(data)) == data, f"thread {number}, round {round_number}: other bytes")
        except (Failure, OSError) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, "\n".join(map(str, failures)))


def transfers(there, **options):
    with connected(there, **options) as path, Disk(path) as disk:
        sizes(disk)
        many_at_once(disk)


def transfers_by_srq(there):
    """As `transfers`, with a target that takes its requests from shared receive queues."""
    with connected(there):
        resources = there.must("rdma", "resource", "show", there.device)
        check(int(re.search(r"\bsrq (\d+)", resources)[1]) > 0, f"the target has no shared receive queue: {resources}")
    transfers(there)


def another_connection(there):
    """Data that were written by way of the page cache are there for those who connect later."""
    data = pattern(99, 8 << 20)
    with connected(there) as path, open(path, "r+b") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with connected(there) as path, open(path, "rb") as file:
        check(file.read(len(data)) == data, "other bytes than before")


class Reader:
    """A thread that reads from a disk until it fails."""

    def __init__(self, path):
        self.reads, self.ended = 0, threading.Event()
        threading.Thread(target=self._read, args=(path,), daemon=True).start()

    def _read(self, path):
        try:
            with Disk(path) as disk:
                while True:
                    disk.read(0, 1 << 18)
                    self.reads += 1
        except (OSError, Failure):
            self.ended.set()

    def await_some(self, seconds=10):
        wanted = self.reads + 10
        wait_for(lambda: self.reads >= wanted, "the disk is read", seconds)


def under_load(there, one):
    """`one` happens while the disk is read. The reader then gets an error, or reads to the end."""
    name, path = connect(there)
    reader = Reader(path)
    reader.await_some()
    one(name)
    wait_for(reader.ended.is_set, "the reader ends", 30)
    wait_for(lambda: not os.path.exists(f"/sys/class/nvme/{name}"), f"{name} is gone", 30)


# A device of a PCI function has no link to delete: it goes when its function loses the driver.
GO = """
function=/sys/class/infiniband/$1/device
[ -e $function ] || exec rdma link delete $1
basename $(readlink $function) >/run/function
cat /run/function >/sys/bus/pci/drivers/ferrule/unbind
"""
COME = """
[ -e /run/function ] || exec rdma link add $1 type ${1%[0-9]*} netdev $2
cat /run/function >/sys/bus/pci/drivers/ferrule/bind
"""


def device_goes(side):
    begin = time.monotonic()
    side.must("sh", "-ec", GO, "sh", side.device)
    check(time.monotonic() - begin < 10 * SLOW, f"to go took {time.monotonic() - begin:.1f} s")


def device_comes(side, netdev):
    side.must("sh", "-ec", COME, "sh", side.device, netdev)
    side.call("gid", side.device, "ipv4")


def is_of_function(device):
    return os.path.exists(f"/sys/class/infiniband/{device}/device")


def reset_unseen(device):
    """Reset the function of a device by a write to Device Control, of which its driver is not told."""
    control = 0x40 + 8
    with open(f"/sys/class/infiniband/{device}/device/config", "r+b", buffering=0) as config:
        word = int.from_bytes(os.pread(config.fileno(), 2, control), "little")
        os.pwrite(config.fileno(), (word | 1 << 15).to_bytes(2, "little"), control)


def function_is_reset(here):
    """The function of both forgets all while the disk is read: their users are told, and let go."""
    device = here.device
    address = os.path.basename(os.readlink(f"/sys/class/infiniband/{device}/device"))
    try:
        under_load(here, lambda _name: reset_unseen(device))
        wait_for(lambda: not os.path.exists(f"/sys/class/infiniband/{device}"), f"{device} is gone")
    finally:
        # It is bound still, without a device.
        for file in ("unbind", "bind"):
            here.must("sh", "-c", f"echo {address} >/sys/bus/pci/drivers/ferrule/{file}")
        here.call("gid", device, "ipv4")
    transfers(here)


def host_goes(there, here, netdev):
    """The host's device goes while the disk is read, and the disk with it; they come again."""
    try:
        under_load(there, lambda _name: device_goes(here))
    finally:
        device_comes(here, netdev)
    transfers(there)


def target_goes(there, netdev):
    """The target's device goes while the disk is read. The host waits for it, and goes on when it is there again."""
    with connected(there, ctrl_loss_tmo=120) as path:
        reader = Reader(path)
        reader.await_some()
        try:
            device_goes(there)
        finally:
            device_comes(there, netdev)
        # The host asks again every few seconds.
        reader.await_some(30)
        with Disk(path) as disk:
            sizes(disk)
    wait_for(reader.ended.is_set, "the reader ends")


def the_other_way_round(here, there):
    """The target is here, and its host at the other node."""
    with target(here):
        running = there.start(sys.executable, __file__, "host", here.link)
        status, output = running.wait()
        check(status == 0, running.told(status, output))


def host(address):
    must("modprobe", "nvme-rdma")
    transfers(Node("the target", address, None, address))


def irq_poll_is_preempted():
    raise Skip("with PREEMPT_RT, softirqs of one processor preempt each other, and lib/irq_poll.c then completes a completion "
               "queue twice: Linux's NVMe goes down on rdma_rxe as well")


def main():
    device, *peer = sys.argv[1:]
    if PREEMPT_RT:
        tap = Tap()
        tap.case("transfers", irq_poll_is_preempted)
        return tap.end()
    netdev = "eth0" if peer else "dummy0"
    threading.Thread(target=node.serve, args=(PORT,), daemon=True).start()
    here = Node("node 1", "127.0.0.1", device, "10.77.0.1")
    there = Node("node 2", "10.77.0.2", peer[0], "10.77.0.2") if peer else here
    tap = Tap()
    must("modprobe", "nvme-rdma")
    with target(there):
        tap.case("transfers", transfers, there)
        tap.case("transfers, 2 queues of 16 requests", lambda: transfers(there, nr_io_queues=2, queue_size=16))
        tap.case("another connection", another_connection, there)
        tap.case("disconnect under load", under_load, there, disconnect)
        if peer:
            tap.case("the device goes at the host under load", host_goes, there, here, netdev)
            tap.case("the device goes at the target under load", target_goes, there, netdev)
        else:
            tap.case("the device goes under load", host_goes, there, here, netdev)
            if is_of_function(device):
                tap.case("the function is reset unseen under load", function_is_reset, here)
    with target(there, "use_srq=1"):
        tap.case("transfers, shared receive queues at the target", transfers_by_srq, there)
        if not peer:
            tap.case("the device goes under load, shared receive queues at the target", host_goes, there, here, netdev)
        elif peer[0] == device:
            tap.case("the device goes at the target under load, shared receive queues", target_goes, there, netdev)
    if peer and peer[0] != device:
        tap.case("transfers the other way round", the_other_way_round, here, there)
    tap.end()


if __name__ == "__main__":
    if sys.argv[1] == "host":
        host(sys.argv[2])
    else:
        main()
