# SPDX-License-Identifier: GPL-2.0
"""All kinds of runs, by name."""

import many
import nic_guests
import one_guest
import real_time
import studies
import two_guests

SCENARIOS = {"one-guest": one_guest.SCENARIO, "many": many.SCENARIO, **two_guests.SCENARIOS, **nic_guests.SCENARIOS,
             "real-time": real_time.SCENARIO, "study": studies.SCENARIO}
