# SPDX-License-Identifier: GPL-2.0
"""All kinds of runs, by name."""

import one_guest
import studies

SCENARIOS = {"one-guest": one_guest.SCENARIO, "study": studies.SCENARIO}
