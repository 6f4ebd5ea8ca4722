# SPDX-License-Identifier: GPL-2.0
"""All kinds of runs, by name."""

import one_guest
import studies
import two_guests

SCENARIOS = {"one-guest": one_guest.SCENARIO, **two_guests.SCENARIOS, "study": studies.SCENARIO}
