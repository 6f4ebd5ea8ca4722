# SPDX-License-Identifier: GPL-2.0
"""The parts that the tests of Debian packages share: installing them, looking for remains, traffic."""

import glob
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../guest"))

from guestlib import check, gid_index, must, read, server_and_client, wait_for

RELEASE = os.uname().release
NAMES = ("ferrule", "ibverbs-provider-ferrule", f"ferrule-modules-{RELEASE}")
NEWEST = f"ferrule-modules-{RELEASE.partition('-')[2]}"
DRIVER_FILE = "/etc/libibverbs.d/ferrule.driver"
MODULES = f"/usr/lib/modules/{RELEASE}"
APT = ("apt-get", "-q", "-y", "--no-install-recommends", "-o", "APT::Sandbox::User=root")

# A kernel's thousands of modules are what depmod reads whenever one comes or goes.
SECONDS = 300

# Files that dpkg, apt and systemd write to whatever is installed.
JOURNALS = ("/var/backups", "/var/cache", "/var/lib/apt", "/var/lib/dpkg/available", "/var/lib/dpkg/lock",
            "/var/lib/dpkg/status", "/var/lib/dpkg/triggers", "/var/lib/systemd", "/var/log", "/var/tmp")


def package(directory, name):
    found = glob.glob(f"{directory}/{glob.escape(name)}_*.deb")
    check(len(found) == 1, f"{directory} has {found or 'nothing'} for {name}")
    return found[0]


def field(file, name):
    return must("dpkg-deb", "--field", file, name).strip()


def names(directory):
    """The packages for this kernel; with the metapackage if there is a module for none that is newer."""
    follows = field(package(directory, NEWEST), "Depends").startswith(f"{NAMES[2]} (= ")
    return (*NAMES, NEWEST) if follows else NAMES


def install(directory):
    """Install the packages of one version, or upgrade to them."""
    must(*APT, "install", *(package(directory, name) for name in names(directory)), seconds=SECONDS)
    for name in names(directory):
        state = must("dpkg-query", "--show", "--showformat", "${Version} ${db:Status-Status}", name)
        check(state == f"{field(package(directory, name), 'Version')} installed", f"{name}: {state}")


def listing(root="", modules=MODULES):
    """Every file of the system below `root`, with where it points to if it is a link; of depmod's indexes, the content."""
    found = {}
    for top in ("/etc", "/usr", "/var"):
        for directory, below, files in os.walk(root + top):
            for name in (*below, *files):
                path = os.path.join(directory, name)
                if not path.removeprefix(root).startswith(JOURNALS):
                    found[path.removeprefix(root)] = os.readlink(path) if os.path.islink(path) else ""
    for index in glob.glob(f"{root}{modules}/modules.*"):
        with open(index, "rb") as file:
            found[index.removeprefix(root)] = hashlib.sha256(file.read()).hexdigest()
    return found


def remove(how):
    """`how`: "remove" or "purge"."""
    must(*APT, how, *NAMES, seconds=SECONDS)


def check_nothing_left(before, after=None):
    after = listing() if after is None else after
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    check(not changed, "left, lost or changed:\n" + "\n".join(changed))


def traffic(device):
    wait_for(lambda: "0000:ffff:" in read(f"/sys/class/infiniband/{device}/ports/1/gids/1"), f"{device} has its IPv4 GID", 60)
    command = ["ibv_rc_pingpong", "-d", device, "-g", gid_index(device), "-n", 200, "-c"]
    server_and_client(command, command)
