#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Loads a module of ferrule's from a file, in a guest, and runs a ping-pong over its device.

usage: loaded.py FILE
"""

import sys

from packagelib import traffic

from guestlib import must

DEVICE = "ferrule0"

must("/run/lab/load", sys.argv[1])
must("rdma", "link", "add", DEVICE, "type", "ferrule", "netdev", "dummy0")
traffic(DEVICE)
