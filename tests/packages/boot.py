#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The Debian packages on a whole Debian 13 that boots: a device at each boot, an upgrade, and nothing left behind.

usage: boot.py EARLIER NEWER

Each is a directory with the packages of one version. This runs in each of three boots of one disk, and keeps there what the
next one has to know.
"""

import json
import os
import sys
import time

from packagelib import RELEASE, check_nothing_left, install, listing, remove, traffic

from guestlib import Tap, check, must, read, run, wait_for

EARLIER, NEWER = sys.argv[1:3]
UNIT, DEVICE = "ferrule-link@eth0", "ferrule_eth0"
KEPT = "/root/kept.json"


def has_device():
    # Its GIDs come last.
    return os.path.exists(f"/sys/class/infiniband/{DEVICE}/ports/1/gids/1")


def running_system():
    """Debian's systemd is process 1 and has nothing to complain about; the kernel is that of its package."""
    wait_for(lambda: run("systemctl", "is-system-running")[1].strip() != "starting", "the boot is complete", 300)
    state = run("systemctl", "is-system-running")[1].strip()
    check(state == "running", f"systemd is {state}:\n{run('systemctl', '--failed')[1]}")
    must("dpkg-query", "--show", f"linux-image-{RELEASE}")


def install_and_enable():
    install(EARLIER)
    must("systemctl", "enable", UNIT)
    check(not has_device(), f"{DEVICE} is there before it was asked for")


def device_after_boot():
    """Nobody has said anything since the boot, and programs have a device."""
    wait_for(has_device, f"{DEVICE} is there", 60)
    check(must("systemctl", "is-active", UNIT).strip() == "active", f"{UNIT} is not active")
    traffic(DEVICE)


def upgrade():
    """The device stays as it is while its packages are replaced."""
    install(NEWER)
    check(has_device(), f"{DEVICE} has gone")
    traffic(DEVICE)


def units():
    """systemd's list of ferrule's services. The mount of this checkout is the lab's, and systemd keeps a template's slice."""
    loaded = must("systemctl", "list-units", "--all", "--plain", "--no-legend", "ferrule*.service")
    # Its status is 1 where there is none.
    status, files = run("systemctl", "list-unit-files", "--no-legend", "ferrule*.service")
    check(status == (0 if files else 1), f"systemctl list-unit-files: status {status}\n{files}")
    return loaded + files


def network_device_goes_and_comes():
    """The link is bound to its network device."""
    bus = os.path.basename(os.path.realpath("/sys/class/net/eth0/device"))
    driver = "/sys/bus/virtio/drivers/virtio_net"
    with open(f"{driver}/unbind", "w") as file:
        file.write(bus)
    wait_for(lambda: not has_device(), f"{DEVICE} has gone", 60)
    wait_for(lambda: run("systemctl", "is-active", UNIT)[1].strip() == "inactive", f"{UNIT} is inactive", 60)
    with open(f"{driver}/bind", "w") as file:
        file.write(bus)
    wait_for(has_device, f"{DEVICE} is there again", 60)
    traffic(DEVICE)


def removed():
    """A removed package takes its device along; an instance that a user has enabled may wait for its return."""
    remove("remove")
    check(not os.path.exists(f"/sys/class/infiniband/{DEVICE}"), f"{DEVICE} is left")
    check(run("modinfo", "ferrule")[0] != 0, "depmod's index has the module still")
    must("rmmod", "ferrule")


def purged(before):
    remove("purge")
    check_nothing_left(before)
    must("systemctl", "daemon-reload")
    check(not units(), f"systemd knows of\n{units()}")
    check("ferrule" not in read("/proc/modules"), "the module is loaded")


def keep(tap, before):
    with open(KEPT, "w") as file:
        json.dump({"count": tap.count, "before": before}, file)


def kept():
    with open(KEPT) as file:
        return json.load(file)


def first(tap):
    tap.case("running_system", running_system)
    before = listing()
    tap.case("install_and_enable", install_and_enable)
    return before


def second(tap):
    known = kept()
    tap.count = known["count"]
    tap.case("device_after_boot", device_after_boot)
    tap.case("upgrade_under_the_device", upgrade)
    return known["before"]


def third(tap):
    known = kept()
    tap.count = known["count"]
    tap.case("running_system_again", running_system)
    tap.case("device_after_boot_again", device_after_boot)
    tap.case("network_device_goes_and_comes", network_device_goes_and_comes)
    tap.case("removed", removed)
    tap.case("purged", purged, known["before"])
    return None


def main():
    boot = int(os.environ["LAB_BOOT"])
    tap = Tap()
    boots = (first, second, third)
    check(boot <= len(boots), f"boot {boot} was not asked for")
    before = boots[boot - 1](tap)
    if before is None or tap.failed:
        tap.end()
    keep(tap, before)
    print(f"# reboot {boot} of {len(boots) - 1}", flush=True)
    os.sync()
    must("systemctl", "reboot")
    # The next boot is what ends this one.
    time.sleep(300)
    sys.exit("it does not reboot")


main()
