# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the build tree (qemu/labkit/tree.py): what it says where it cannot be entered."""

import os
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import errors, tree


class Namespaces(unittest.TestCase):
    def refused(self, user, telling):
        with tempfile.TemporaryDirectory() as path:
            unshare = Path(path, "unshare")
            unshare.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
            unshare.chmod(0o755)
            tree._namespaces.cache_clear()
            self.addCleanup(tree._namespaces.cache_clear)
            with unittest.mock.patch.dict(os.environ, PATH=path), \
                    unittest.mock.patch.object(os, "geteuid", lambda: user), \
                    self.assertRaises(errors.LabError) as caught:
                tree._namespaces()
        self.assertIn("Operation not permitted", str(caught.exception))
        self.assertIn(telling, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_a_user_without_user_namespaces(self):
        self.refused(1000, "allow them with: sudo sysctl kernel.unprivileged_userns_clone=1")

    def test_root_in_a_container(self):
        self.refused(0, "docker run --privileged")


if __name__ == "__main__":
    unittest.main()
