# SPDX-License-Identifier: GPL-2.0
"""The parameter study of `make study`: the cost of each choice in the use of verbs."""

from dataclasses import dataclass

from scenario import KIB, MIB, Measure, Scenario
from ways import CpuTime, Pairs, Perftest, Rate, Registration, Writes


@dataclass(frozen=True)
class Study:
    """One parameter, and the explanation of its picture."""

    name: str
    title: str
    about: str
    measures: tuple[str, ...]


STUDIES = (
    Study("inline", "Inline data",
          "A request may carry its bytes itself (IBV_SEND_INLINE) instead of naming registered memory. The provider then "
          "copies them into the ring, where the adapter finds them with the request: one look-up of a memory key and one "
          "access less, for a larger request. ib_write_lat, with -I 0 and with -I 256.",
          ("study_inline",)),
    Study("verb", "Verb",
          "SEND needs a receive request and makes two completions, WRITE none at the target, READ takes the bytes the "
          "other way, and atomics come back with what was there. The programs ib_*_lat tell half of a round trip for SEND "
          "and WRITE, where both ends post, and the whole of one for READ and atomics, where only one does.",
          ("study_verb",)),
    Study("events", "Polling or events",
          "A program that polls sees a completion at once and uses a processor for it. One that sleeps on a completion "
          "channel (ibv_get_cq_event) lets others have it, and pays with an interrupt's way through the kernel for each "
          "message. "
          "ib_send_lat, with and without -e; the processor time is of both processes together.",
          ("study_events", "study_events_cpu")),
    Study("signalled", "Every n-th request signalled",
          "Only a signalled request makes a completion when it succeeds; what came before it on the queue is then done, "
          "too. Fewer completions are fewer writes for the adapter and fewer polls for the program. ib_write_bw of 8 B, "
          "with -Q n.",
          ("study_signalled",)),
    Study("list", "Lists of requests",
          "ibv_post_send takes a list: its requests are written one after the other, and the doorbell is rung once for "
          "all. ib_write_bw of 8 B, with -l n.",
          ("study_list",)),
    Study("mr", "Size of the memory region",
          "WRITEs of 64 B go to random places of a region. The larger it is, the less of what translates its addresses "
          "is at hand: on an adapter its cache of translations, here the processor's. Registering pins each page, so that "
          "it takes time in proportion. load.c, with 16 requests under way.",
          ("study_mr", "study_mr_register")),
    Study("qps", "Number of queue pairs",
          "WRITEs of 64 B, each to the next of n queue pairs. An adapter keeps the state of a few at hand and fetches the "
          "rest from memory; an engine in software has to find those that were rung among all others. load.c, with 64 "
          "requests under way over all queue pairs.",
          ("study_qps",)),
    Study("pairs", "Number of programs",
          "Pairs of programs, each with a connection of its own, on two processors. One client leaves the second processor "
          "to the engine; two clients share both with it. What all pairs reach together: ib_write_bw of 64 KiB, for a few "
          "seconds.",
          ("study_pairs",)),
)

MEASURES = {
    "study_inline": Measure("WRITE latency, inline or not", "us", "bytes"),
    "study_verb": Measure("Latency by verb", "us", "bytes"),
    "study_events": Measure("SEND latency, polling or events", "us", "bytes"),
    "study_events_cpu": Measure("CPU time of SEND, polling or events", "us/message", "bytes"),
    "study_signalled": Measure("WRITE rate, every n-th signalled", "k/s", "n", False),
    "study_list": Measure("WRITE rate, n posted with one call", "k/s", "n", False),
    "study_mr": Measure("WRITE rate by size of the region", "k/s", "bytes", False),
    "study_mr_register": Measure("Registering and deregistering", "us", "bytes"),
    "study_qps": Measure("WRITE rate over n QPs", "k/s", "QPs", False),
    "study_pairs": Measure("WRITE bandwidth of all pairs, 64 KiB", "MiB/s", "pairs", False),
}

_SIZES = (8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB)
_REGIONS = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
_WAITS = (("polling", ()), ("events", ("-e",)))
_POWERS = (1, 2, 4, 8, 16, 32, 64)


def _latency(size: int) -> int:
    return max(100, min(2500, 16 * MIB // size))


SCENARIO = Scenario(
    about="one parameter at a time, both ends in one guest",
    lab=("--smp", "2", "--mem", "2048"),
    measures=MEASURES,
    ways=(
        *(Perftest(measure="study_inline", series=series, program="ib_write_lat", size=size, count=2500, x=size,
                   options=("-I", most))
          for size in (8, 16, 32, 64, 128, 256) for series, most in (("inline", 256), ("not inline", 0))),
        *(Perftest(measure="study_verb", series=series, program=f"ib_{series.lower()}_lat", size=size,
                   count=_latency(size), x=size)
          for size in _SIZES for series in ("SEND", "WRITE", "READ")),
        Perftest(measure="study_verb", series="fetch-and-add", program="ib_atomic_lat", size=8, count=2500, x=8),
        *(Perftest(measure="study_events", series=series, program="ib_send_lat", size=size, count=_latency(size) // 4,
                   x=size, options=options, slow=bool(options))
          for size in _SIZES for series, options in _WAITS),
        *(CpuTime(measure="study_events_cpu", series=series, program="ib_send_lat", size=size, count=_latency(size) // 4,
                  x=size, options=options, slow=bool(options))
          for size in _SIZES[::2] for series, options in _WAITS),
        *(Rate(measure="study_signalled", program="ib_write_bw", size=8, count=12800, x=n, options=("-Q", n))
          for n in _POWERS),
        *(Rate(measure="study_list", program="ib_write_bw", size=8, count=12800, x=n, options=("-l", n) if n > 1 else ())
          for n in _POWERS),
        *(Writes(measure="study_mr", command=f"write size=64 window=16 mr={size}", count=8192, x=size)
          for size in _REGIONS),
        *(Registration(measure="study_mr_register", size=size, count=max(4, min(500, 64 * MIB // size)), x=size)
          for size in _REGIONS),
        *(Writes(measure="study_qps", command=f"write size=64 window=64 qps={n}", count=16384, x=n)
          for n in (1, 4, 16, 64, 256, 1024)),
        *(Pairs(measure="study_pairs", program="ib_write_bw", size=64 * KIB, pairs=n, x=n) for n in (1, 2, 4, 8)),
    ))
