# SPDX-License-Identifier: GPL-2.0
"""The parts of tests/run.

suite.py      what a suite is, read from tests/suites/
counting.py   results out of what a program prints
host.py       suites that run on this machine
guest.py      suites that run in a virtual machine, several in one boot
lanes.py      so many of them at a time
usage.py      what processor time that took
table.py      the table at the end
"""
