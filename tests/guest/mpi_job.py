#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Two processes of an MPI job, which compare all that they get; and what starts one on another guest.

usage: mpi_job.py messages                the same bytes go there and come back
       mpi_job.py memory                  each reaches the other's memory
       mpi_job.py agent NODE COMMAND…     mpirun's, in the place of ssh: runs a command there, by node.py
"""

import struct
import sys

from guestlib import Failure, check, rounds
from node import Node

# Sizes of MPI messages: by each way that the libraries have, at once, and after an agreement.
MESSAGES = (0, 1, 100, 2000, 9000, 70000, 1 << 20, 5 << 20)

# Sizes of puts and gets.
PLACED = (1, 8, 2000, 70000)


def pattern(seed, size):
    return (bytes((index * 7 + seed) % 251 for index in range(251)) * (size // 251 + 1))[:size]


def messages(world, mine, other):
    for size in MESSAGES:
        data = pattern(size, size)
        if mine == 0:
            world.Send(data, other, 5)
        got = bytearray(size)
        world.Recv(got, other, 5)
        check(got == data, f"{size} bytes differ")
        if mine == 1:
            world.Send(got, other, 5)
    for number in range(rounds(500)):
        check(world.sendrecv((mine, number), other, 7, None, other, 7) == (other, number), f"message {number}")
    check(world.allreduce(mine + 1) == 3, "the sum is wrong")


def placed(world, mine, other, window, memory):
    """Each puts bytes into the other's memory, and gets them from there."""
    place = max(PLACED)
    for size in PLACED:
        data, got = pattern(size + mine, size), bytearray(size)
        window.Put(bytearray(data), other, target=(place, size))
        window.Flush(other)
        world.Barrier()
        window.Sync()
        check(bytes(memory[place:place + size]) == pattern(size + other, size), f"{size} bytes differ that the other put")
        check(not any(memory[place + size:]), f"{size} bytes were put, and more changed")
        window.Get(got, other, target=(place, size))
        window.Flush(other)
        check(got == data, f"{size} bytes differ that were put and got")
        world.Barrier()


def counted(world, mpi, window):
    """Both count by one word of process 0, and no number comes twice; of two that replace a number, one succeeds."""
    one, old, seen = struct.pack("q", 1), bytearray(8), []
    for _ in range(rounds(100)):
        window.Fetch_and_op([bytearray(one), mpi.INT64_T], [old, mpi.INT64_T], 0, 0, mpi.SUM)
        window.Flush(0)
        seen += struct.unpack("q", old)
    world.Barrier()
    numbers = sorted(sum(world.allgather(seen), []))
    check(numbers == list(range(len(numbers))), f"numbers that were counted: {numbers}")
    won = 0
    for number in range(rounds(50)):
        before, after = struct.pack("q", number), struct.pack("q", number + 1)
        window.Compare_and_swap([bytearray(after), mpi.INT64_T], [bytearray(before), mpi.INT64_T], [old, mpi.INT64_T], 0, 8)
        window.Flush(0)
        got, = struct.unpack("q", old)
        check(got in (number, number + 1), f"{got} in the place of {number}")
        won += got == number
        world.Barrier()
    check(world.allreduce(won) == rounds(50), f"replaced {won} times here")


def memory(world, mine, other):
    from mpi4py import MPI

    window = MPI.Win.Allocate(2 * max(PLACED) + 64, 1, comm=world)
    bytes_here = window.tomemory()
    bytes_here[:] = bytes(len(bytes_here))
    world.Barrier()
    window.Lock_all()
    placed(world, mine, other, window, bytes_here)
    counted(world, MPI, window)
    window.Unlock_all()
    window.Free()


JOBS = {job.__name__: job for job in (messages, memory)}


def agent(name, *words):
    """As ssh would: the words are one command for a shell."""
    status, output = Node(name, name, None, None).start("sh", "-c", " ".join(words)).wait()
    print(output, end="")
    sys.exit(status)


def main():
    if sys.argv[1] == "agent":
        agent(*sys.argv[2:])
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    try:
        check(world.Get_size() == 2, f"a job of {world.Get_size()}")
        JOBS[sys.argv[1]](world, world.Get_rank(), 1 - world.Get_rank())
    except Failure as failure:
        print(failure, flush=True)
        world.Abort(1)
    world.Barrier()
    print("all is right", flush=True)


if __name__ == "__main__":
    main()
