# SPDX-License-Identifier: GPL-2.0
"""How things are measured between two guests: the client runs on node 1, the server on node 2."""

import contextlib
import json
from dataclasses import dataclass
from typing import Iterator

from ways import PROGRAMS, Failure, Figure, Limits, Perftest, in_time, must

from node import Node  # its directory is known since ways was imported
from wire import between, netem

NETDEV = "eth0"

# Runs the words behind it on the processor that takes what comes from the network.
NEAR = ("sh", "-c", r"""irq=$(sed -n 's/^ *\([0-9]*\):.*-input[.]0$/\1/p' /proc/interrupts)
exec taskset -c "$(cat "/proc/irq/$irq/effective_affinity_list")" "$@" """, "sh")


def drivers_of(driver: str) -> tuple[str, str]:
    """The drivers of client and server: "rxe" for both, "ferrule-rxe" for a client with ferrule."""
    client, _, server = driver.partition("-")
    return client, server or client


def nodes(driver: str) -> tuple[Node, Node]:
    """Client and server: node 1, which is this guest, and node 2, each with its device."""
    client, server = drivers_of(driver)
    return Node("node 1", "127.0.0.1", f"{client}0", "10.77.0.1"), Node("node 2", "10.77.0.2", f"{server}0", "10.77.0.2")


@dataclass(frozen=True, kw_only=True)
class WirePerftest(Perftest):
    """A figure of perftest's between two guests. All drivers do as many iterations."""

    slow: bool = True
    near: bool = False      # on the processor that takes what comes from the network

    drivers = ("ferrule", "rxe", "ferrule-rxe", "rxe-ferrule")

    def command(self, count: int) -> list:
        # Either side asks for as many reads at a time as the other side's device can answer, and its own may not.
        return [*(NEAR if self.near else ()), *super().command(count), *(("-o", 16) if "read" in self.program else ())]

    def output(self, driver: str, count: int) -> str:
        client, server = nodes(driver)
        with in_time():
            return between(server, client, self.command(count),
                           lambda here: ("-d", here.device, "-x", here.call("gid", here.device, "ipv4")), seconds=25)[0]


@dataclass(frozen=True, kw_only=True)
class LossyPerftest(WirePerftest):
    """The same where a part of the packets is lost, in either direction."""

    loss: str               # as tc-netem(8) has it

    drivers = ("ferrule", "rxe")

    def output(self, driver: str, count: int) -> str:
        with netem(nodes(driver), (NETDEV, NETDEV), "loss", self.loss):
            return super().output(driver, count)


@dataclass(frozen=True, kw_only=True)
class Echo(Limits):
    """Microseconds in which the other guest's kernel answers a small packet: tests/bench/limits.c."""

    measure: str = "echo"

    def run(self, driver: str) -> Iterator[Figure]:
        # The kernel asks for the group of a process that uses such sockets.
        must("sysctl", "-qw", "net.ipv4.ping_group_range=0 0")
        with in_time():
            _, value, _ = must(f"{PROGRAMS}/limits", nodes("none")[1].address, seconds=60).split()
        yield self.figure(float(value))


@dataclass(frozen=True, kw_only=True)
class Iperf(Limits):
    """MiB/s that arrive at the other guest without RDMA."""

    options: tuple = ()     # of iperf3's client
    seconds: int = 3
    busy: bool = False      # beside a program in each guest that does what one does that polls: it never sleeps

    def run(self, driver: str) -> Iterator[Figure]:
        client, server = nodes("none")
        with contextlib.ExitStack() as stack, in_time():
            for node in (client, server) if self.busy else ():
                stack.callback(node.start("sh", "-c", "while :; do :; done", seconds=60).kill)
            text, _ = between(server, client, ("iperf3", "--json"), lambda here: self.side(here is client), seconds=25)
        yield self.figure(self.value(text))

    def side(self, is_client: bool) -> tuple:
        return (*self.options, "--time", self.seconds, "--client") if is_client else ("--server", "--one-off")

    @staticmethod
    def value(text: str) -> float:
        try:
            return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8 / (1 << 20)
        except (ValueError, KeyError):
            raise Failure(f"iperf3 does not tell what arrived:\n{text}") from None
