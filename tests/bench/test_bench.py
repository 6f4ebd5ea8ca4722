# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the benchmarks: reading what programs print, choosing, and judging."""

import argparse
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import host  # noqa: E402
import targets  # noqa: E402
from scenario import KIB, MIB  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402
from studies import STUDIES  # noqa: E402
from ways import Failure, Late, Lateness, Limits, Perftest, PerMessage, Rate, SystemCalls, in_time  # noqa: E402
from wire_ways import Iperf, nodes  # noqa: E402


def a_run(only=(), sizes=(), kind="one-guest", drivers=(), **figures) -> host.Run:
    """A run with figures such as ferrule_send_lat=[1, 2], or with an x: ferrule_write_bw=(65536, [1, 2])."""
    run = host.Run(kind, argparse.Namespace(rounds=2, drivers=list(drivers), only=list(only), sizes=list(sizes)))
    for name, values in figures.items():
        driver, measure = name.split("_", 1)
        x, values = values if isinstance(values, tuple) else (None, values)
        run.rows += [(number, driver, measure, "", x, value) for number, value in enumerate(values, 1)]
    return run


def verdicts(run: host.Run) -> list[str]:
    return [row[3] for row in targets.judged(run)[1:]]


class Reading(unittest.TestCase):
    LATENCY = " 8       1000          5.10           99.20        5.60     \t       5.77  \t0.30\t\t6.40\t\t9.90".split()
    BANDWIDTH = " 65536      1000             2100.50            2047.25                   0.032756".split()

    def test_latency_is_the_typical_one(self):
        self.assertEqual(Perftest(measure="m", program="ib_write_lat", size=8, count=1).value(self.LATENCY), 5.6)

    def test_bandwidth_is_the_average(self):
        self.assertEqual(Perftest(measure="m", program="ib_write_bw", size=65536, count=1).value(self.BANDWIDTH),
                         2047.25)

    def test_bandwidth_of_small_messages_comes_from_their_rate(self):
        words = "8 1000 1.25 1.11 0.145400".split()
        self.assertAlmostEqual(Perftest(measure="m", program="ib_write_bw", size=8, count=1).value(words),
                               145400 * 8 / MIB)

    def test_rate_is_in_thousands(self):
        self.assertAlmostEqual(Rate(measure="m", program="ib_write_bw", size=65536, count=1).value(self.BANDWIDTH),
                               32.756)

    def test_lateness(self):
        self.assertEqual(Lateness.told("# late by 3.9 us\n# later by -0.2 us\nok 1 - contexts_1000 # 2.2 s\n"), -0.2)
        self.assertRaises(Failure, Lateness.told, "not ok 1 - contexts_1000")

    def test_histogram(self):
        text = "#\n{ common_pid:        167 } hitcount:          6\n{ common_pid:         83 } hitcount:        109\n"
        self.assertEqual(SystemCalls.calls(text, 83), 109)
        self.assertRaises(Failure, SystemCalls.calls, text, 16)

    def test_a_cost_is_the_difference_of_two_lengths(self):
        class Fake(PerMessage):
            def observe(self, driver, count):
                return {"client": 1000 + 2 * count, "server": 500, "worker": 3 * count}

        figures = {figure.series: figure.value
                   for figure in Fake(measure="m", program="ib_write_bw", size=8, count=10).run("rxe")}
        self.assertEqual(figures, {"": 2, "client": 2, "server": 0, "worker": 3})
        # Both ends send, so that each iteration is two messages.
        figures = list(Fake(measure="m", program="ib_send_lat", size=8, count=10).run("rxe"))
        self.assertEqual(figures[0].value, 1)

    def test_iperf_tells_what_arrived(self):
        told = {"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 8 * 300 * MIB}}}
        self.assertEqual(Iperf.value(json.dumps(told)), 300)
        self.assertRaises(Failure, Iperf.value, '{"error": "unable to connect"}')
        self.assertRaises(Failure, Iperf.value, "iperf3: interrupted")

    def test_late_is_only_what_was_not_done_in_time(self):
        for text, kind in (("ib_write_bw: not done within 25 s", Late), ("ib_write_bw: status 1", Failure)):
            with self.assertRaises(Failure) as caught, in_time():
                raise Failure(text)
            self.assertIs(type(caught.exception), kind)


class Scenarios(unittest.TestCase):
    def test_every_way_and_drawn_measure_has_a_name(self):
        for scenario in SCENARIOS.values():
            names = {way.measure for way in scenario.ways if not isinstance(way, Limits)} | set(scenario.drawn)
            self.assertEqual(names - set(scenario.measures), set())

    def test_every_study_has_its_measures_and_no_measure_is_forgotten(self):
        named = [name for study in STUDIES for name in study.measures]
        self.assertEqual(sorted(named), sorted(SCENARIOS["study"].measures))

    def test_no_two_ways_tell_the_same(self):
        for scenario in SCENARIOS.values():
            places = [(way.measure, way.series, way.x) for way in scenario.ways]
            self.assertEqual(len(places), len(set(places)))

    def test_every_target_is_of_something_measured(self):
        for kind, bounds in targets.TARGETS.items():
            scenario = SCENARIOS[kind]
            measured = {(way.measure, way.x) for way in scenario.ways}
            for target in bounds:
                self.assertIn(target.measure, scenario.measures)
                if target.x:
                    self.assertIn((target.measure, target.x), measured)
                if isinstance(target, targets.NotSlower):
                    self.assertIn(target.driver, scenario.drivers)
                if hasattr(target, "limit"):
                    self.assertIn(target.limit, scenario.measures)

    def test_no_driver_is_measured_that_has_no_turn(self):
        for scenario in SCENARIOS.values():
            for way in scenario.ways:
                self.assertLessEqual(set(way.drivers), {"guest", *scenario.drivers})

    def test_chosen(self):
        scenario = SCENARIOS["one-guest"]
        some = scenario.chosen(["write_*"], [64 * KIB])
        self.assertEqual([(way.measure, way.x) for way in some],
                         [("limits", None), ("write_lat", None), ("write_rate", None), ("write_rate_list", None),
                          ("write_bw", 64 * KIB)])
        self.assertEqual(scenario.chosen([], []), list(scenario.ways))
        self.assertTrue(scenario.has([]) and scenario.has(["nothing", "write_*"]))
        self.assertFalse(scenario.has(["loss_*"]))

    def test_the_drivers_have_turns_as_asked_where_the_scenario_has_them(self):
        asked = ("rxe-ferrule", "rxe", "ferrule")
        self.assertEqual(a_run(drivers=asked).drivers, ["rxe", "ferrule"])
        self.assertEqual(a_run(kind="wire-1", drivers=asked).drivers, list(asked))
        self.assertEqual(a_run(kind="wire-1").drivers, ["ferrule", "rxe", "ferrule-rxe", "rxe-ferrule"])

    def test_the_client_is_on_node_1(self):
        self.assertEqual([(node.name, node.device, node.link) for node in nodes("ferrule-rxe")],
                         [("node 1", "ferrule0", "10.77.0.1"), ("node 2", "rxe0", "10.77.0.2")])
        self.assertEqual([node.device for node in nodes("rxe")], ["rxe0", "rxe0"])


class Judging(unittest.TestCase):
    def test_less_is_better(self):
        run = a_run(["send_lat"], ferrule_send_lat=[7, 7.2], rxe_send_lat=[71, 80], guest_system_call=[0.5])
        self.assertEqual(verdicts(run), ["reached", "NOT reached"])

    def test_more_is_better(self):
        run = a_run(["write_bw"], [MIB], ferrule_write_bw=(MIB, [1000]), rxe_write_bw=(MIB, [200]),
                    guest_tmpfs_1MiB=[1500])
        self.assertEqual(verdicts(run), ["NOT reached", "reached"])

    def test_missing(self):
        run = a_run(["read_lat"], rxe_read_lat=[40])
        self.assertEqual(verdicts(run), ["not measured: ferrule has no figure"])

    def test_at_most_forgives_a_thousandth_and_below_nothing(self):
        self.assertEqual(verdicts(a_run(["calls_send_lat"], ferrule_calls_send_lat=[1.0004])), ["reached"])
        self.assertEqual(verdicts(a_run(["calls_send_lat"], ferrule_calls_send_lat=[1.01])), ["NOT reached"])
        self.assertEqual(verdicts(a_run(["calls_write_bw"], ferrule_calls_write_bw=[0.01])), ["NOT reached"])

    def test_not_above(self):
        run = a_run(["idle_time"])
        for series, value in (("alone", 8.0), ("own process", 9.1), ("others", 9.3)):
            run.rows.append((1, "ferrule", "idle_time", series, None, value))
        self.assertEqual(verdicts(run), ["reached", "NOT reached"])


    def test_the_smaller_of_two_bounds_is_enough(self):
        def verdict(ours):
            return verdicts(a_run(["send_bw"], kind="wire-1", drivers=["ferrule", "rxe"], ferrule_send_bw=[ours],
                                  rxe_send_bw=[20], guest_iperf_udp=[60]))[0]

        self.assertEqual([verdict(ours) for ours in (41, 42, 60)], ["NOT reached", "reached", "reached"])
        run = a_run(["send_bw"], kind="wire-1", ferrule_send_bw=[60], rxe_send_bw=[20])
        self.assertEqual(verdicts(run)[0], "not measured: guest has no figure")

    def test_rxe_at_one_end_is_held_against_rxe_at_both(self):
        run = a_run(["read_lat"], kind="wire-2")
        for driver, value in (("ferrule", 300), ("rxe", 900), ("ferrule-rxe", 900), ("rxe-ferrule", 901)):
            run.rows.append((1, driver, "read_lat", "", None, value))
        self.assertEqual([row[0] for row in targets.judged(run)[3:]],
                         ["READ latency, 8 B, ferrule-rxe", "READ latency, 8 B, rxe-ferrule"])
        self.assertEqual(verdicts(run), ["reached", "not measured: guest has no figure", "reached", "NOT reached"])


class Telling(unittest.TestCase):
    def test_lines_of_the_guest(self):
        run = a_run()
        told = {"done": 1, "total": 2, "round": 1, "driver": "rxe", "measure": "send_lat", "series": "", "x": None}
        run.take(json.dumps(told | {"figures": [["send_lat", 71.5, "", None]]}))
        run.take(json.dumps(told | {"driver": "ferrule", "reason": "it\n-----\nbroke"}))
        self.assertEqual(run.median("rxe", "send_lat"), 71.5)
        self.assertEqual(run.missing, ["SEND latency, 10 B, ferrule, round 1: it; broke"])

    def test_csv(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "new/figures.csv"
            a_run(ferrule_write_bw=(MIB, [2000.5])).write(path)
            head, row = path.read_text().splitlines()
        self.assertEqual(dict(zip(head.split(","), row.split(","))),
                         {"scenario": "one-guest", "round": "1", "driver": "ferrule", "measure": "write_bw",
                          "title": "WRITE bandwidth", "series": "", "x": str(MIB), "x_name": "bytes", "value": "2000.5",
                          "unit": "MiB/s"})

    def test_in_words(self):
        self.assertEqual([host.in_words(x, "bytes") for x in (8, 4096, 3 * MIB)], ["8 B", "4 KiB", "3 MiB"])
        self.assertEqual(host.in_words(64, "QPs"), "64 QPs")


if __name__ == "__main__":
    unittest.main()
