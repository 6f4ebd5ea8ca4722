#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The bundle, unpacked and used by an ordinary user who has nothing else of the lab (TAP).

usage: bundle.py DIRECTORY, which has the archive and its checksum
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests/guest"))

from guestlib import Skip, Tap, check, note  # noqa: E402

MADE = Path(sys.argv[1])

# Root runs the bundle as this user, who may do nothing; anybody else runs it as themselves.
NOBODY = 65534

LARGEST = 400_000_000
LONGEST = 60

PINGPONG = "ibv_rc_pingpong -d ferrule0 -g 1 -n 1000 > /dev/null & sleep 0.5; ibv_rc_pingpong -d ferrule0 -g 1 -n 1000 127.0.0.1"

TESTS = """\
#!/bin/sh
echo 1..3
echo "ok 1 - device $(ls /sys/class/infiniband)"
echo "ok 2 - later # SKIP not yet"
echo "# 1 is not 2"
echo "not ok 3 - sum"
exit 1
"""


class Bundle:
    """An unpacked bundle, with a home of its user's."""

    def __init__(self, directory):
        self.home = directory / "home"
        self.share = directory / "share, with a comma"
        for below in (self.home, self.share):
            below.mkdir()
        archive = MADE / "ferrule-lab.tar.xz"
        subprocess.run(["sha256sum", "--check", "--quiet", f"{archive.name}.sha256"], cwd=MADE, check=True)
        self.archive = archive
        begin = time.monotonic()
        subprocess.run(["tar", "-x", "-f", archive.resolve(), "-C", directory, "--no-same-owner"], check=True)
        note(f"unpacked in {time.monotonic() - begin:.1f} s")
        self.top = directory / "ferrule-lab"
        if os.geteuid() == 0:
            for path in (self.home, self.share):
                os.chown(path, NOBODY, NOBODY)

    def lab(self, *words, seconds=300, **environment):
        """Run it; returns its status, what it printed, and what it said."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)} | environment
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run([self.top / "ferrule-lab", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", cwd=self.share, env=environment, timeout=seconds, **who)
        return done.returncode, done.stdout, done.stderr

    def status(self, wanted, *words, **environment):
        status, output, said = self.lab(*words, **environment)
        check(status == wanted, f"status {status} and not {wanted}:\n{output}{said}")
        return output, said


def size(bundle):
    """The archive is small enough to be fetched by each run of a CI service."""
    size = bundle.archive.stat().st_size
    unpacked = sum(file.stat().st_size for file in bundle.top.rglob("*") if file.is_file())
    note(f"{size / 1e6:.1f} MB packed, {unpacked / 1e6:.1f} MB unpacked")
    check(size <= LARGEST, f"the archive has {size} bytes, and at most {LARGEST} are wanted")


def first_transfer(bundle):
    """From the unpacked archive to bytes that have moved: the check of the files and the look for KVM are part of it."""
    before = waiting()
    begin = time.monotonic()
    output, said = bundle.status(0, "run", "--", "sh", "-c", PINGPONG)
    took = time.monotonic() - begin
    check(re.search(r"1000 iters in .* seconds", output), f"no result of a ping-pong:\n{output}{said}")
    under = next((line for line in said.splitlines() if " under " in line), "")
    note(f"{took:.1f} s to the end of the run, {under.removeprefix('lab: ')}; {waiting() - before:.1f} s of them waiting "
         f"for one of {os.cpu_count()} processors")
    begin = time.monotonic()
    bundle.status(0, "run", "--", "true")
    note(f"the next run takes {time.monotonic() - begin:.1f} s")
    check(took <= LONGEST, f"it took {took:.1f} s, and at most {LONGEST} are wanted")


def waiting():
    """Seconds in which some process of this machine waited for a processor, so far (PSI); 0 where the kernel has none."""
    try:
        return int(re.search(r"^some .*total=(\d+)", Path("/proc/pressure/cpu").read_text(), re.MULTILINE)[1]) / 1e6
    except (OSError, TypeError):
        return 0.0


def two_nodes(bundle):
    output, said = bundle.status(0, "run", "--nodes", "2", "--peer", "ib_send_bw -u 20 -n 200", "--",
                                 "sh", "-c", "sleep 1; ib_send_bw -u 20 -n 200 10.77.0.2")
    check(re.search(r"^ *65536 +200 ", output, re.MULTILINE), f"no result of ib_send_bw:\n{output}{said}")


def statuses(bundle):
    """The exit statuses are qemu/lab's."""
    bundle.status(7, "run", "--device", "none", "--", "sh", "-c", "exit 7")
    bundle.status(124, "run", "--timeout", "40", "--", "sleep", "1000")
    _, said = bundle.status(125, "run", "--", "sh", "-c", "echo 'WARNING: by the test' > /dev/kmsg")
    check("kernel reports (WARNING): WARNING: by the test" in said, said)
    log = Path(re.search(r"its whole log is (\S+)", said)[1])
    check("Linux version" in log.read_text(errors="replace"), f"{log} has no boot")
    for words in (["run"], ["run", "--frob", "--", "x"], ["build"], ["run", "--backend", "nic", "--", "x"]):
        _, said = bundle.status(2, *words)
        check(said.count("\n") == 1, said)
    check("./ferrule-lab run" in bundle.status(0, "--help")[0], "no help")


def share(bundle):
    """A program of the user's own, with the device's name, that leaves a file behind."""
    program = bundle.share / "my test"
    program.write_text('#!/bin/sh\nibv_devinfo -d "$1" > /share/left && ls -l /share/left\n')
    program.chmod(0o755)
    bundle.status(0, "run", "--share", ".", "--", "/share/my test", "ferrule0")
    left = bundle.share / "left"
    check("PORT_ACTIVE" in left.read_text(), left.read_text())
    check(os.geteuid() != 0 or left.stat().st_uid == NOBODY, "it belongs to somebody else")


def junit(bundle):
    """Each test that the program tells by TAP is in the file."""
    program = bundle.share / "tests"
    program.write_text(TESTS)
    program.chmod(0o755)
    bundle.status(1, "run", "--share", ".", "--junit", "results.xml", "--", "/share/tests")
    suite = ElementTree.parse(bundle.share / "results.xml").getroot().find("testsuite")
    found = [(case.get("name"), [child.tag for child in case]) for case in suite]
    check(found == [("device ferrule0", []), ("later", ["skipped"]), ("sum", ["failure"])], f"it has {found}")
    check(suite.find("testcase/failure").text == "# 1 is not 2", "the reason is not there")


def damaged(bundle):
    image = bundle.top / "frozen/kernel/vmlinuz"
    content = image.read_bytes()
    try:
        for wrong in (content[:-1], bytes([content[0] ^ 1]) + content[1:]):
            image.write_bytes(wrong)
            _, said = bundle.status(126, "run", "--", "true")
            last = said.splitlines()[-1]
            check("the bundle is damaged" in last and "unpack it again" in last, said)
    finally:
        image.write_bytes(content)


def without_qemu(bundle):
    program = bundle.top / "frozen/tree/root/usr/bin/qemu-system-x86_64"
    away = program.rename(bundle.home / program.name)
    try:
        _, said = bundle.status(126, "run", "--", "true")
        check(said.count("\n") == 1 and f"{program} is not there" in said and "unpack it again" in said, said)
    finally:
        away.rename(program)


def cache_that_cannot_be_written(bundle):
    _, said = bundle.status(126, "run", "--", "true", FERRULE_CACHE="/proc/nowhere")
    check(said.count("\n") == 1 and "set FERRULE_CACHE" in said, said)


def full_disk(bundle):
    """The lab says what to do."""
    if os.geteuid() != 0:
        raise Skip("only root can mount a small disk")
    small = bundle.home / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=777", "tmpfs", small], check=True)
    try:
        with suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        _, said = bundle.status(126, "run", "--", "true", FERRULE_CACHE=str(small / "cache"))
        check("set FERRULE_CACHE" in said.splitlines()[-1], said)
    finally:
        subprocess.run(["umount", small], check=True)


def main():
    tap = Tap()
    # The user has to get there, and the image is too large for many a /tmp.
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        bundle = Bundle(directory)
        tap.case("size", size, bundle)
        tap.case("first_transfer", first_transfer, bundle)
        for case in (two_nodes, statuses, share, junit, damaged, without_qemu, cache_that_cannot_be_written, full_disk):
            tap.case(case.__name__, case, bundle)
    finally:
        shutil.rmtree(directory)
    tap.end()


if __name__ == "__main__":
    main()
