# SPDX-License-Identifier: GPL-2.0
"""Tests of the lab's cache (qemu/labkit/cache.py) and of the pieces that choose and merge without running anything."""

import contextlib
import errno
import io
import multiprocessing
import os
import sys
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import cache, debug, errors, guest, image, kernel, module, provider, system, tree
from labkit.arch import AMD64, ARM64
from labkit.archive import Package


class InCache(unittest.TestCase):
    """Tests with an empty cache."""

    def setUp(self):
        quiet = contextlib.redirect_stderr(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        before = os.environ.get("FERRULE_CACHE")
        os.environ["FERRULE_CACHE"] = directory.name
        self.addCleanup(lambda: os.environ.pop("FERRULE_CACHE") if before is None
                        else os.environ.__setitem__("FERRULE_CACHE", before))

    def left(self):
        return [path for part in ("entries", "tmp") for path in (self.root / part).glob("*")]


class Cached(InCache):
    def test_an_entry_is_built_once_for_the_same_inputs(self):
        built = []

        def build(directory, _step):
            built.append(directory)
            (directory / "file").write_text("x")

        first = cache.entry("kind", {"a": 1}, "building", build)
        self.assertEqual(cache.entry("kind", {"a": 1}, "building", build), first)
        self.assertNotEqual(cache.entry("kind", {"a": 2}, "building", build), first)
        self.assertEqual(len(built), 2)
        self.assertEqual((first / "file").read_text(), "x")

    def test_labs_that_begin_together_drop_the_oldest_runs(self):
        # Numbers that no process has.
        for number in range(1 << 30, (1 << 30) + 100):
            old = self.root / f"runs/20260101-000000-{number}"
            old.mkdir(parents=True)
            for name in "abcdef":
                (old / name).touch()
        labs = [multiprocessing.get_context("fork").Process(target=guest.new_directory) for _ in range(6)]
        for lab in labs:
            lab.start()
        for lab in labs:
            lab.join()
        self.assertEqual([lab.exitcode for lab in labs], [0] * len(labs))
        left = len(list((self.root / "runs").iterdir()))
        self.assertTrue(guest.KEPT_RUNS <= left <= guest.KEPT_RUNS + len(labs), left)

    def test_a_failed_build_leaves_nothing(self):
        def build(directory, _step):
            (directory / "half").write_text("x")
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            cache.entry("kind", {}, "building", build)
        self.assertEqual(self.left(), [])

    def test_what_a_killed_lab_left_is_replaced(self):
        partial = self.root / "tmp" / f"kind-{cache.digest({})}"
        partial.mkdir(parents=True)
        (partial / "stale").write_text("x")
        made = cache.entry("kind", {}, "building", lambda directory, _: (directory / "new").write_text("y"))
        self.assertFalse((made / "stale").exists())

    def test_a_full_disk_is_told(self):
        def build(_directory, _step):
            raise OSError(errno.ENOSPC, "No space left on device")

        with self.assertRaisesRegex(errors.LabError, "is full.*qemu/lab clean"):
            cache.entry("kind", {}, "building", build)
        self.assertEqual(self.left(), [])

    def test_two_at_once_build_once(self):
        built = []
        begun, go_on = threading.Event(), threading.Event()

        def build(_directory, _step):
            built.append(1)
            begun.set()
            go_on.wait(5)

        threads = [threading.Thread(target=cache.entry, args=("kind", {}, "building", build)) for _ in range(2)]
        threads[0].start()
        begun.wait(5)
        threads[1].start()
        go_on.set()
        for thread in threads:
            thread.join()
        self.assertEqual(built, [1])

    def test_clean_spares_what_is_in_use_and_new(self):
        used = cache.entry("used", {}, "building", lambda *_: None)
        old = self.root / "entries/old-0"
        (old / "closed").mkdir(parents=True)
        (old / "closed/file").write_text("x")
        (old / "closed").chmod(0o500)
        os.utime(old, (0, 0))
        new = self.root / "entries/new-0"
        new.mkdir()
        self.assertEqual(cache.clean(7), 1)
        self.assertTrue(used.exists() and new.exists() and not old.exists())
        cache.clean(0)
        self.assertTrue(used.exists() and not new.exists())

    def test_an_interrupted_removal_leaves_no_entry(self):
        made = cache.entry("kind", {}, "building", lambda directory, _: (directory / "file").write_text("x"))
        os.close(cache._held.pop())
        with unittest.mock.patch("shutil.rmtree", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            cache.clean(0)
        self.assertFalse(made.exists())
        cache.clean(0)
        self.assertEqual(self.left(), [])

    def test_the_hash_of_files_sees_content_names_and_absence(self):
        (self.root / "a").write_text("1")
        digests = {cache.digest_files(self.root, ["a", "b"])}
        (self.root / "a").write_text("2")
        digests.add(cache.digest_files(self.root, ["a", "b"]))
        (self.root / "b").write_text("2")
        digests.add(cache.digest_files(self.root, ["a", "b"]))
        (self.root / "b").rename(self.root / "c")
        digests.add(cache.digest_files(self.root, ["a", "c"]))
        self.assertEqual(len(digests), 4)

    def test_objects_are_of_one_build_of_the_kernel(self):
        def objects(kdir):
            target = unittest.mock.Mock(kdir=Path(f"/entries/{kdir}/obj"))
            return module.for_kernel(target, "module-debug") / "net.o"

        objects("debug-1").write_text("old")
        self.assertTrue(objects("debug-1").exists())
        self.assertFalse(objects("debug-2").exists())


class Builds(InCache):
    """Builds of a checkout with one source, in which no compiler runs."""

    def setUp(self):
        super().setUp()
        checkout = self.root / "checkout"
        self.source = checkout / "userspace-provider/CMakeLists.txt"
        self.source.parent.mkdir(parents=True)
        self.source.write_text("first")
        (checkout / "Kbuild").write_text("first")
        (self.root / "origin/providers").mkdir(parents=True)
        self.target = unittest.mock.Mock(kdir=Path("/entries/kdir-1/obj"), is_debian=False, make_words=[], rust_flags=[],
                                         binds=[], arch=AMD64)
        self.target.name = "stock"
        self.patch(module.tree, "CHECKOUT", checkout)
        self.patch(module.tree, "tools", lambda _arch: Path("/entries/tree-1/root"))
        self.patch(module.tree, "compile", lambda *_, **__: None)
        self.patch(provider, "PROVIDER", self.source.parent)
        self.patch(provider, "source", lambda: self.root / "origin")
        self.patch(provider, "_compile", lambda *_: self.source)

    def patch(self, module, name, value):
        patch = unittest.mock.patch.object(module, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def saved_while_it_waits(self, file, build):
        """A person saves a file while a build waits for the lock of its directory, and has it built again."""
        lock, taken = cache.lock, []

        def late(name):
            # The first is that of the entry.
            taken.append(name)
            if len(taken) == 2:
                file.write_text("second")
            return lock(name)

        with unittest.mock.patch.object(cache, "lock", late), self.assertRaisesRegex(errors.LabError, "run it again"):
            build()
        self.assertEqual(self.left(), [])
        self.assertTrue(build().is_dir())

    def test_a_module_is_of_the_sources_that_its_name_tells(self):
        self.saved_while_it_waits(module.tree.CHECKOUT / "Kbuild", lambda: module.build(self.target))

    def test_a_module_is_of_its_flags_and_limits(self):
        made = {module.build(self.target)}
        self.target.rust_flags = ["-Cpasses=tsan"]
        made.add(module.build(self.target))
        with unittest.mock.patch.object(module.frames, "LIMIT", 1):
            made.add(module.build(self.target))
        self.assertEqual(len(made), 3)

    def test_a_provider_is_of_the_sources_that_its_name_tells(self):
        self.saved_while_it_waits(self.source, provider.build)


class Image(unittest.TestCase):
    def test_a_guest_has_the_rdma_core_that_the_provider_is_for(self):
        debian = SimpleNamespace(release="7.3.1+deb13-amd64", version="7.3.1-1")
        for make in (lambda: image.root(), lambda: image.root(target=ARM64), lambda: system.image(debian)):
            made = set()
            for version in ("56.1", "57.0"):
                with (unittest.mock.patch.object(provider, "version", lambda: version),
                      unittest.mock.patch.object(tree, "packaging", lambda: Path("/entries/packaging-1/root")),
                      unittest.mock.patch.object(cache, "entry", lambda _kind, inputs, *_, **__: Path(cache.digest(inputs)))):
                    made.add(make())
            self.assertEqual(len(made), 2)


class Choices(unittest.TestCase):
    def test_a_kernel_counts_only_when_complete(self):
        def all_of(version, source):
            release = f"{version}+deb13-amd64"
            return [Package(f"linux-image-{release}", source), Package(f"linux-headers-{release}", source)]

        packages = [*all_of("7.2.9", "7.2.9-1"), *all_of("7.2.12", "7.2.12-1"), *all_of("7.2.13", "7.2.13-1"),
                    Package("linux-source-7.2", "7.2.9-1"), Package("linux-source-7.2", "7.2.12-1"),
                    Package("linux-image-7.2.12+deb13-amd64-dbg", "7.2.12-1")]
        found = kernel.complete(packages, ("image", "headers", "source"))
        self.assertEqual([one.release for one in found], ["7.2.9+deb13-amd64", "7.2.12+deb13-amd64"])
        packages.append(Package("linux-headers-7.3.1+deb13-amd64", "7.3.1-1"))
        packages.append(Package("linux-source-7.3", "7.3.1-1"))
        self.assertEqual([one.release for one in kernel.complete(packages, ("image", "headers", "source"))],
                         [one.release for one in found])
        self.assertEqual(kernel.complete(packages, ("headers", "source"))[-1].release, "7.3.1+deb13-amd64")
        self.assertEqual((found[1].upstream, found[1].series, found[1].local, found[1].flavour),
                         ("7.2.12", "7.2", "+deb13-amd64", "amd64"))

    def test_a_kernel_that_debian_has_changed_is_newer(self):
        releases = {"7.3.4+deb13-amd64": "7.3.4-1~bpo13+1", "7.3.4+deb13+1-amd64": "7.3.4-2~bpo13+1",
                    "7.3.4+deb13+10-amd64": "7.3.4-11~bpo13+1", "7.2.12+deb13+1-amd64": "7.2.12-2~bpo13+1"}
        packages = [package for release, version in releases.items()
                    for package in (Package(f"linux-headers-{release}", version),
                                    Package("linux-source-" + release[:3], version))]
        found = [one.release for one in kernel.complete(packages, ("headers", "source"))]
        self.assertEqual(found, ["7.2.12+deb13+1-amd64", *list(releases)[:3]])
        self.assertEqual((kernel.Kernel(found[-1], "1").upstream, kernel.Kernel(found[-1], "1").flavour), ("7.3.4", "amd64"))

    def test_a_candidate_has_the_name_of_what_it_is_to_become(self):
        packages = [Package(f"linux-{part}", "7.4~rc2-1~exp1") for part in ("headers-7.4-amd64", "headers-7.4-common",
                                                                           "headers-7.4-cloud-amd64", "source-7.4")]
        found, = kernel.complete(packages, ("headers", "source"))
        self.assertEqual((found.release, found.upstream, found.series, found.local, found.flavour),
                         ("7.4-amd64", "7.4", "7.4", "-amd64", "amd64"))

    def test_a_flavour_has_its_own_kernels(self):
        packages = [Package("linux-source-7.2", "7.2.9-1"),
                    *(Package(f"linux-headers-7.2.9+deb13-{flavour}", "7.2.9-1") for flavour in ("amd64", "cloud-amd64"))]
        for flavour in ("amd64", kernel.CLOUD):
            found = kernel.complete(packages, ("headers", "source"), flavour)
            self.assertEqual([one.flavour for one in found], [flavour])

    def test_the_compiler_of_a_configuration(self):
        self.assertEqual(kernel.compiler_of('CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-14 (Debian 14) 14"'), "gcc-14")

    def test_a_setting_that_vanished_is_named(self):
        fragment = 'CONFIG_A=y\nCONFIG_B=n\nCONFIG_C="x"\n# CONFIG_D is not set\nCONFIG_E=m\n'
        merged = debug.merge("CONFIG_A=m\nCONFIG_Z=y\n", fragment)
        self.assertEqual(debug.lost(merged, fragment), [])
        self.assertIn("CONFIG_Z=y", merged)
        self.assertEqual(debug.lost('# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C="x"\nCONFIG_E=y\n', fragment),
                         ["CONFIG_A=y", "CONFIG_B=n", "CONFIG_E=m"])

    def test_modules_load_after_what_they_need(self):
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "modules.dep").write_text(
                "k/9p.ko.xz: k/9pnet.ko.xz k/netfs.ko.xz\nk/9pnet.ko.xz:\nk/netfs.ko.xz:\n"
                "k/9pnet_virtio.ko.xz: k/9pnet.ko.xz\nk/unused.ko.xz:\n")
            order = [path.name.split(".")[0] for path in kernel.early_modules(Path(directory))]
        self.assertEqual(sorted(order), ["9p", "9pnet", "9pnet_virtio", "netfs"])
        self.assertLess(order.index("9pnet"), order.index("9pnet_virtio"))
        self.assertLess(order.index("netfs"), order.index("9p"))

    def test_an_initramfs_has_files_directories_and_an_end(self):
        archive = image.cpio({"lab/init": (b"hello", 0o755)})
        self.assertEqual(len(archive) % 4, 0)
        self.assertTrue(archive.startswith(b"070701"))
        for piece in (b"lab\0", b"lab/init\0", b"hello", b"TRAILER!!!\0"):
            self.assertIn(piece, archive)


if __name__ == "__main__":
    unittest.main()
