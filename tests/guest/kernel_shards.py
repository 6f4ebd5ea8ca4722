#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Kernel users that have nothing to do with each other have engines of their own.

usage: kernel_shards.py DEVICE
"""

import concurrent.futures
import ctypes
import os
import re
import sys

from guestlib import Skip, Tap, check, must, read, wait_for

MODULE = "ferrule_user"


def streams(device, **parameters):
    """Loads the kernel user, which writes, and unloads it."""
    told = [f"{name}={value}" for name, value in parameters.items()]
    must("/run/lab/load", f"/ferrule/module/{MODULE}.ko", f"device={device}", *told, seconds=120)
    must("rmmod", MODULE)


def queue_pairs(device):
    """How many connected queue pairs there are in each shard that has any."""
    found = {}
    for line in read(f"/sys/kernel/debug/ferrule/{device}/engine").splitlines():
        if begin := re.match(r"shard (\d+)", line):
            shard = int(begin[1])
        elif re.match(r"qp \S+ Rc ", line):
            found[shard] = found.get(shard, 0) + 1
    return found


def each_has_its_own(device):
    if os.cpu_count() == 1:
        raise Skip("with one processor there is one shard")
    with concurrent.futures.ThreadPoolExecutor() as thread:
        users = thread.submit(streams, device, streams=3, bytes=4096, ms=3000)
        wait_for(lambda: sum(queue_pairs(device).values()) == 6 or users.done(), "six queue pairs are connected")
        found = queue_pairs(device)
        # Raises what failed there.
        users.result()
    check(sorted(found.values()) == [2, 2, 2] and 0 not in found, f"queue pairs by shards: {found}")


def opened(device, count):
    """Opens the device so many times as a program, and returns the contexts."""
    verbs = ctypes.CDLL("libibverbs.so.1")
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    verbs.ibv_open_device.restype = ctypes.c_void_p
    verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
    listed = ctypes.c_int()
    devices = verbs.ibv_get_device_list(ctypes.byref(listed))
    found = next(one for one in devices[:listed.value] if verbs.ibv_get_device_name(one) == device.encode())
    contexts = [verbs.ibv_open_device(found) for _ in range(count)]
    check(all(contexts), "a context could not be opened")
    return [lambda context=context: verbs.ibv_close_device(ctypes.c_void_p(context)) for context in contexts]


def beside_programs_with_all_shards(device):
    """Those that find no shard without users do not all begin in one."""
    if os.cpu_count() == 1:
        raise Skip("with one processor there is one shard")
    close = opened(device, 126)
    try:
        each_has_its_own(device)
    finally:
        for one in close:
            one()


def shards_are_used_again(device):
    """Users that come and go make no more shards than there are users at a time, each with two before its first queue pair."""
    def workers():
        return len(re.findall(rf"^{device}/\d+$", must("ps", "-e", "-o", "comm="), re.M))

    # Programs that ran before have left theirs.
    most = max(workers(), 2 * 4 + 2)
    for _ in range(3):
        streams(device, streams=4, scenes=20, bytes=4096, ms=2)
        check(workers() <= most, f"{workers()} workers, {most} at most")
    check(queue_pairs(device) == {}, f"left: {queue_pairs(device)}")


def main(device):
    tap = Tap()
    for case in (each_has_its_own, shards_are_used_again, beside_programs_with_all_shards):
        tap.case(case.__name__, case, device)
    tap.end()


if __name__ == "__main__":
    main(sys.argv[1])
