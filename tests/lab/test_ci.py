# SPDX-License-Identifier: GPL-2.0
"""Tests of .ci/run, with programs that wait in the place of those that it runs."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

# One tells its number and waits; another is as good as there.
WAITS = "#!/bin/sh\necho $$ > {}\nexec sleep 60\n"
THERE = "#!/bin/sh\necho there\n"


class Interrupted(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.top = Path(directory.name)
        for name in (".ci", "qemu", "bin", "tmp"):
            (self.top / name).mkdir()
        shutil.copy(CHECKOUT / ".ci/run", self.top / ".ci")
        self.program("qemu/lab", WAITS.format(self.top / "lab.pid"))
        self.program("bin/make", WAITS.format(self.top / "make.pid"))
        for name in ("apt-get", "mmdebstrap", "newuidmap", "xz"):
            self.program(f"bin/{name}", THERE)

    def program(self, name, text):
        (self.top / name).write_text(text)
        (self.top / name).chmod(0o755)

    def number(self, name):
        """The number of a program, as soon as it runs."""
        deadline = time.monotonic() + 20
        while not (self.top / name).exists() or not (self.top / name).read_text():
            self.assertLess(time.monotonic(), deadline, f"no {name}")
            time.sleep(0.05)
        return int((self.top / name).read_text())

    def ends(self, number):
        """Whether a process ends soon. One that its parent has not taken note of has no words any more."""
        for _ in range(100):
            words = Path("/proc", str(number), "cmdline")
            if not words.exists() or not words.read_text():
                return True
            time.sleep(0.05)
        return False

    def test_its_end_is_that_of_what_it_runs(self):
        self.check_end("make.pid", "lab.pid")

    def test_its_end_is_that_of_an_installation(self):
        self.program("bin/apt-get", f"#!/bin/sh\n[ $1 != indextargets ] || exit 0\n{WAITS.format(self.top / 'apt.pid')}")
        self.program("bin/sudo", '#!/bin/sh\nshift\nexec "$@"\n')
        self.check_end("apt.pid")

    def check_end(self, *names):
        """When the script is told to end, the programs of these files do, too."""
        for how, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(how=how):
                for name in names:
                    (self.top / name).unlink(missing_ok=True)
                environment = os.environ | {"PATH": f"{self.top}/bin:{os.environ['PATH']}", "TMPDIR": str(self.top / "tmp")}
                with subprocess.Popen([self.top / ".ci/run"], env=environment, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as script:
                    begun = [self.number(name) for name in names]
                    script.send_signal(how)
                    try:
                        script.wait(10)
                    except subprocess.TimeoutExpired:
                        script.kill()
                    ended = [self.ends(number) for number in begun]
                    for number, is_gone in zip(begun, ended):
                        if not is_gone:
                            os.kill(number, signal.SIGKILL)
                self.assertEqual((script.returncode, ended), (status, [True] * len(names)))
                self.assertEqual(list((self.top / "tmp").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
