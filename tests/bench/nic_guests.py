# SPDX-License-Identifier: GPL-2.0
"""The PCI function of ferrule-nic against rdma_rxe, in one guest and between two of one process, for `make bench`."""

from dataclasses import dataclass

from scenario import LIMITS, MIB, Measure, Scenario
from ways import Limits, Perftest
from wire_ways import WirePerftest

VERBS = ("write", "send", "read")

MEASURES = {
    **{f"{verb}_bw": Measure(f"{verb.upper()} bandwidth, 1 MiB", "MiB/s", "", False) for verb in VERBS},
    **{f"{verb}_lat": Measure(f"{verb.upper()} latency, 8 B", "us") for verb in VERBS},
    **LIMITS,
}


@dataclass(frozen=True, kw_only=True)
class BetweenGuests(WirePerftest):
    """Either driver at both ends."""

    slow: bool = False
    drivers = ("ferrule", "rxe")


def _scenario(about: str, nodes: int, way: type[Perftest]) -> Scenario:
    return Scenario(
        about=about,
        nodes=nodes,
        lab=("--backend", "nic", "--smp", "2", "--mem", "1024"),
        measures=MEASURES,
        drawn=tuple(MEASURES)[:6],
        ways=(
            Limits(),
            # Packets of rxe, with four processors on two, are late at times. The default timeout would take them for lost.
            *(way(measure=f"{verb}_bw", program=f"ib_{verb}_bw", size=MIB, count=32, more=128, options=("-u", "18"))
              for verb in VERBS),
            *(way(measure=f"{verb}_lat", program=f"ib_{verb}_lat", size=8, count=200, more=20, options=("-u", "18"))
              for verb in VERBS),
        ))


SCENARIOS = {
    "nic-1": _scenario("both ends in one guest with a PCI function", 1, Perftest),
    "nic-2": _scenario("two guests, each with a PCI function of one ferrule-nic", 2, BetweenGuests),
}
