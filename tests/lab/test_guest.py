# SPDX-License-Identifier: GPL-2.0
"""Tests of how the lab takes the end of its guests (qemu/labkit/guest.py), with other programs in the place of QEMU."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import guest
from labkit.arch import AMD64
from labkit.errors import LAB_FAILED

# The words of a node's agent when it is there, and when the command has ended with status 7.
HERE = r"printf 'H\004\000\000\000null'"
ENDED = r"""printf 'X\015\000\000\000{"status": 7}'"""


class Ends(unittest.TestCase):
    def run_with(self, *scripts, nodes=1):
        """The lab's status, its words, and how many nodes it started: the first is the first script, and so on."""
        started = []

        def start(node, _plan, _accelerator, _ethernet):
            script = scripts[min(len(started), len(scripts) - 1)]
            started.append(node)
            with node.qemu_log.open("wb") as log:
                node.process = subprocess.Popen(["sh", "-c", script], stdin=node.channel.guest_end,
                                                stdout=node.channel.guest_end, stderr=log)
            node.channel.started()

        plan = guest.Plan(argv=["true"], device="none", kernel=SimpleNamespace(release="0", arch=AMD64), parts=[], nodes=nodes,
                          timeout=20)
        said = io.StringIO()
        with (tempfile.TemporaryDirectory() as directory, contextlib.redirect_stderr(said),
              unittest.mock.patch.object(guest.Node, "start", start),
              unittest.mock.patch.object(guest.accel, "choose", lambda _qemu, _arch: ([], "nothing")),
              unittest.mock.patch.object(guest, "new_directory", lambda: Path(directory))):
            status = guest.run(plan)
        return status, said.getvalue(), len(started)

    def test_a_command_has_its_status(self):
        status, _, started = self.run_with(f"{HERE}; {ENDED}")
        self.assertEqual((status, started), (7, 1))

    def test_a_fault_of_qemu_at_boot_is_tried_once_more(self):
        status, said, started = self.run_with("echo 'Assertion failed.' >&2; kill -ABRT $$", f"{HERE}; {ENDED}")
        self.assertEqual((status, started), (7, 2))
        self.assertIn("QEMU itself has failed (Assertion failed.)", said)

    def test_and_not_for_ever(self):
        status, _, started = self.run_with("kill -SEGV $$")
        self.assertEqual((status, started), (LAB_FAILED, 2))

    def test_a_fault_under_the_command_is_told(self):
        status, said, started = self.run_with(f"{HERE}; kill -ABRT $$")
        self.assertEqual((status, started), (LAB_FAILED, 1))
        self.assertIn("went down before the command had ended", said)

    def test_a_guest_that_goes_down_by_itself_is_told(self):
        status, _, started = self.run_with("exit 0")
        self.assertEqual((status, started), (LAB_FAILED, 1))

    def test_a_fault_of_either_node_starts_both(self):
        status, _, started = self.run_with("sleep 1", "kill -ABRT $$", f"{HERE}; {ENDED}", f"{HERE}; sleep 1", nodes=2)
        self.assertEqual((status, started), (7, 4))

    def test_the_command_begins_anew_in_a_system_that_reboots(self):
        second = r"""timeout 1 cat | grep -q '"LAB_BOOT": "2"'"""
        self.assertEqual(self.run_with(f"{HERE}; {HERE}; {second} && {ENDED}")[0], 7)
        self.assertEqual(self.run_with(f"{HERE}; {second} && {ENDED}")[0], LAB_FAILED)


if __name__ == "__main__":
    unittest.main()
