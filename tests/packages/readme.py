#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The commands of README.md, as they stand there, on fresh trees of Debian 12 and 13, as an ordinary user and as root (TAP).

usage: readme.py [--cache DIR] [--first N]

A tree has apt, sudo and a user. The cache of the first tree is empty, unless DIR has one; the later trees find there what
the first has made, since the lab makes the same on all releases. `--first` stops after so many. This runs on the host, as
root, because a tree has two users.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Skip, Tap, check  # noqa: E402
from labkit import cache, debian  # noqa: E402
from page import blocks  # noqa: E402
from recipes import bare  # noqa: E402

# Beside apt: what an installed Debian has, and a person uses.
PACKAGES = ["ca-certificates", "mount", "passwd", "sudo"]
HOME = "/home/user"
SECONDS = 3600

# Said in words beside the commands.
IN_WORDS = "make run BACKEND=nic"

# Commands that this does not run, by how they begin.
ELSEWHERE = {"sudo apt install ./build/deb": "packages_boot installs the packages on a machine that boots",
             "sudo systemctl enable": "packages_boot does, on a machine that boots",
             "make KDIR=": "a machine's own kernel with Rust",
             "sudo make KDIR=": "a machine's own kernel with Rust",
             "sudo modprobe ferrule": "a machine's own kernel with Rust",
             ".ci/run": "CI does"}

# The same with less of it, for all trees but the first.
SHORTER = {"tests/run --only 'rc_*'": "tests/run --only rc_states"}

PROGRAM = """\
#!/bin/sh
ibv_devinfo -d "$1" | grep PORT_ACTIVE
"""

# Runs in namespaces of its own: $1 is the tree; then as in labkit/tree.py. A user of the tree makes user namespaces, which
# Linux refuses in a chroot, so the tree becomes the root of the mounts.
ENTER = """
set -e
tree=$1; shift
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp"
while [ -n "$1" ]; do
    if [ -d "$1" ]; then mkdir -p "$tree$2"; else : > "$tree$2"; fi
    mount --bind "$1" "$tree$2"
    shift 2
done
shift
cd "$tree"
mkdir -p old
pivot_root . old
umount -l /old
exec "$@"
"""


def commands(text):
    """The commands of the sections Start and Commands, without their comments; each with a reason if it is run elsewhere."""
    found = []
    for section in ("## Start", "## Commands"):
        body = text.partition(f"\n{section}\n")[2].partition("\n## ")[0]
        for block in blocks(body):
            found += [" ".join(shlex.split(line, comments=True, posix=False)) for line in block.splitlines()]
    check(IN_WORDS in text, f"README.md does not say {IN_WORDS}")
    found.insert(found.index("make run") + 1, IN_WORDS)
    unknown = [begin for begin in ELSEWHERE if not any(command.startswith(begin) for command in found)]
    check(not unknown, f"README.md has no {unknown}")
    return [command for command in found if not command.startswith(tuple(ELSEWHERE))]


def checkout(directory):
    """A copy of this checkout as a clone has it, with a person's program."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=CHECKOUT, check=True,
                           capture_output=True, text=True).stdout.split("\0")
    for name in filter(lambda name: name and (CHECKOUT / name).exists(), names):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, directory / name)
    program = directory / "my-program"
    program.write_text(PROGRAM)
    program.chmod(0o755)


class Machine:
    """A fresh tree, with one user."""

    def __init__(self, release, user, home, directory):
        self.root = directory / "root"
        self.user = user
        subprocess.run(["cp", "--archive", "--reflink=auto", bare(release, PACKAGES), self.root], check=True)
        (self.root / "etc/apt/apt.conf.d/yes").write_text('APT::Get::Assume-Yes "true";\n')
        (self.root / "etc/sudoers.d/user").write_text("user ALL = NOPASSWD: ALL\n")
        self.binds = [(home, HOME)]
        for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
            if os.path.exists(file):
                self.binds.append((os.path.realpath(file), file))
        status, output = self.enter("useradd", "--shell", "/bin/bash", "--home-dir", HOME, "user")
        check(status == 0, output)
        # The user of one tree owns what the other's has made; root's files would be out of its reach.
        self.enter("chown", "--recursive", f"{user}:", HOME)

    def enter(self, *words):
        """Run a command in the tree, as root; returns its status and what it printed."""
        flat = [str(word) for pair in self.binds for word in pair]
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter", self.root, *flat,
                               "", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=SECONDS)
        return done.returncode, done.stdout

    def command(self, command):
        """Run a line of the README in the checkout, by the user's shell."""
        settings = {"HOME": HOME if self.user == "user" else "/root", "LANG": "C.UTF-8", "XDG_CACHE_HOME": f"{HOME}/.cache",
                    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        status, output = self.enter("setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups", "env", "-i",
                                    f"--chdir={HOME}/ferrule", *(f"{name}={value}" for name, value in settings.items()),
                                    "bash", "-c", command)
        print("".join(f"#   {line}\n" for line in output.splitlines()[-6:]), end="", flush=True)
        check(status == 0, f"status {status} of {command}\n{output[-4000:]}")


def needs_root():
    raise Skip("only root can be two users of a tree")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--first", type=int, default=4)
    options = parser.parse_args()
    tap = Tap()
    if os.geteuid() != 0:
        tap.case("fresh_trees", needs_root)
        tap.end()
    lines = commands((CHECKOUT / "README.md").read_text())
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    directory.chmod(0o755)
    home = directory / "home"
    (home / ".cache").mkdir(parents=True)
    checkout(home / "ferrule")
    try:
        if options.cache:
            subprocess.run(["cp", "--archive", "--reflink=auto", options.cache, home / ".cache/ferrule"], check=True)
        machines = [(release, user) for user in ("user", "root") for release in ("bookworm", "trixie")]
        for number, (release, user) in enumerate(machines[:options.first]):
            machine = Machine(release, user, home, directory)
            for line in lines if number == 0 else [SHORTER.get(line, line) for line in lines]:
                tap.case(f"{release}, {user}: {line}", machine.command, line)
            cache.remove(machine.root)
            cache.remove(home / "ferrule/build")
    finally:
        cache.remove(directory)
    tap.end()


if __name__ == "__main__":
    main()
