# SPDX-License-Identifier: GPL-2.0
"""ferrule against rdma_rxe between two guests, and each as the other's peer, for `make bench`."""

from scenario import KIB, Measure, Scenario
from wire_ways import Echo, Iperf, LossyPerftest, WirePerftest

MEASURES = {
    "write_bw": Measure("WRITE bandwidth, 64 KiB", "MiB/s", "", False),
    "send_bw": Measure("SEND bandwidth, 64 KiB", "MiB/s", "", False),
    "read_bw": Measure("READ bandwidth, 64 KiB", "MiB/s", "", False),
    "send_bw_near": Measure("SEND bandwidth, 64 KiB, where packets arrive", "MiB/s", "", False),
    "send_bw_events": Measure("SEND bandwidth, 64 KiB, by events", "MiB/s", "", False),
    "send_bw_events_4": Measure("SEND bandwidth, 64 KiB, by events, 4 connections", "MiB/s", "", False),
    "read_lat": Measure("READ latency, 8 B", "us"),
    "loss_write_bw": Measure("WRITE bandwidth, 1 % loss", "MiB/s", "", False),
    "loss_send_bw": Measure("SEND bandwidth, 1 % loss", "MiB/s", "", False),
    "loss_read_bw": Measure("READ bandwidth, 1 % loss", "MiB/s", "", False),
    "loss_send_bw_events": Measure("SEND bandwidth, 1 % loss, by events", "MiB/s", "", False),
    "echo": Measure("ICMP echo, 8 B, polled for", "us"),
    "iperf_udp": Measure("iperf3 UDP, datagrams of 8 KiB", "MiB/s", "", False),
    "iperf_udp_busy": Measure("iperf3 UDP beside a busy loop in each guest", "MiB/s", "", False),
    "iperf_tcp": Measure("iperf3 TCP", "MiB/s", "", False),
}


UDP = ("--udp", "--bitrate", "0", "--length", 8 * KIB)


def _scenario(processors: int) -> Scenario:
    """The same with so many processors in each guest."""
    verbs = ("write", "send", "read")
    return Scenario(
        about=f"two guests on one Ethernet of MTU 9000, each with {processors} processor{'s'[:processors - 1]}",
        nodes=2,
        lab=("--smp", str(processors), "--mem", "1024"),
        drivers=WirePerftest.drivers,
        measures=MEASURES,
        drawn=tuple(MEASURES),
        ways=(
            Echo(),
            Iperf(measure="iperf_udp", options=UDP),
            Iperf(measure="iperf_udp_busy", options=UDP, busy=True),
            Iperf(measure="iperf_tcp"),
            *(WirePerftest(measure=f"{verb}_bw", program=f"ib_{verb}_bw", size=64 * KIB, count=1000) for verb in verbs),
            # Only of SEND do both programs poll: that takes processors of the machine, which the link needs, too. On
            # the processor that takes what comes from the network they take no other.
            *((WirePerftest(measure="send_bw_near", program="ib_send_bw", size=64 * KIB, count=1000, near=True),
               # Several connections spread over the processors on which packets arrive.
               WirePerftest(measure="send_bw_events_4", program="ib_send_bw", size=64 * KIB, count=1000,
                            options=("--events", "--qp=4")))
              if processors > 1 else ()),
            WirePerftest(measure="send_bw_events", program="ib_send_bw", size=64 * KIB, count=1000,
                         options=("--events",)),
            LossyPerftest(measure="loss_send_bw_events", program="ib_send_bw", size=64 * KIB, count=600, loss="1%",
                          options=("--events",)),
            WirePerftest(measure="read_lat", program="ib_read_lat", size=8, count=2000),
            *(LossyPerftest(measure=f"loss_{verb}_bw", program=f"ib_{verb}_bw", size=64 * KIB, count=600, loss="1%")
              for verb in verbs),
        ))


SCENARIOS = {f"wire-{processors}": _scenario(processors) for processors in (1, 2)}
