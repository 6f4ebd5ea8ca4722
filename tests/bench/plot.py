# SPDX-License-Identifier: GPL-2.0
"""Draws the benchmark's figures: python3 plot.py FIGURES.csv OUT.svg

Each measure is a panel with each round's figure as a dot, the median as a line, and the target that follows from rxe's
median.
"""

import csv
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measures import MEASURES  # noqa: E402

COLOURS = {"ferrule": "#b5482a", "rxe": "#4a6a8a"}


def main(source: str, target: str) -> None:
    figures: dict[tuple[str, str], list[float]] = {}
    with open(source, newline="") as file:
        for row in csv.DictReader(file):
            figures.setdefault((row["measure"], row["driver"]), []).append(float(row["value"]))
    drivers = [driver for driver in COLOURS if any(key[1] == driver for key in figures)]
    picture, panels = plt.subplots(1, len(MEASURES), figsize=(3 * len(MEASURES), 4))
    for panel, measure in zip(panels, MEASURES):
        panel.set_title(measure.name, fontsize=9)
        panel.set_ylabel(measure.unit)
        panel.set_xlim(-0.5, len(drivers) - 0.5)
        panel.set_xticks(range(len(drivers)), drivers)
        for place, driver in enumerate(drivers):
            values = figures.get((measure.name, driver), [])
            panel.plot([place] * len(values), values, "o", color=COLOURS[driver], alpha=0.5)
            if values:
                panel.hlines(statistics.median(values), place - 0.25, place + 0.25, color=COLOURS[driver], linewidth=2)
        rxe = figures.get((measure.name, "rxe"))
        if measure.target and rxe:
            factor = 1 / measure.target if measure.less_is_better else measure.target
            panel.axhline(statistics.median(rxe) * factor, color="black", linestyle=":", linewidth=1)
        panel.set_ylim(bottom=0)
    picture.tight_layout()
    picture.savefig(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
