# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the packages' description (qemu/packaging, qemu/labkit/packages.py): versions, and manual pages that tell
what is there."""

import re
import sys
import unittest
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "qemu"))

from labkit import cli, dkms, errors, kernel, packages

DRIVER = CHECKOUT / "drivers/infiniband/sw/ferrule"


def page(name: str) -> str:
    """A manual page, with plain dashes."""
    return (packages.PACKAGING / "man" / name).read_text().replace("\\-", "-")


def kernel_values():
    return packages.values_of(kernel.Kernel("7.3.4+deb13-amd64", "7.3.4-1"))


class Version(unittest.TestCase):
    LOG = "ferrule (1.2.3) unstable; urgency=medium\n\n  * New (1.2.3).\n\nferrule (1.2.2) unstable\n"

    def test_of_the_driver(self):
        text = "/// Of 32, 16 and 16 bits.\nconst VERSION: u64 = 0x0000_0001_0002_0003;\n"
        self.assertEqual(packages.driver_version(text), "1.2.3")
        with self.assertRaises(errors.LabError):
            packages.driver_version("const OTHER: u64 = 1;")

    def test_of_the_interface(self):
        self.assertEqual(packages.abi("#define FERRULE_ABI_VERSIONS 1\n#define FERRULE_ABI_VERSION\t12\n"), "12")
        with self.assertRaises(errors.LabError):
            packages.abi("#define FERRULE_ABI 1\n")
        self.assertEqual(kernel_values()["ABI"], packages.abi(packages.HEADER.read_text()))

    def test_the_changelog_is_of_the_driver(self):
        version = packages.driver_version(packages.DRIVER.read_text())
        packages.changelog((packages.PACKAGING / "debian/changelog").read_text(), version)

    def test_a_changelog_of_another_version_is_refused(self):
        with self.assertRaises(errors.LabError) as caught:
            packages.changelog(self.LOG, "1.2.4")
        self.assertIn("1.2.4", str(caught.exception))
        self.assertIn("about 1.2.3", str(caught.exception))

    def test_another_version_is_put_into_the_newest_entry_alone(self):
        self.assertEqual(packages.changelog(self.LOG, "1.2.3", "0.9").count("0.9"), 1)
        self.assertTrue(packages.changelog(self.LOG, "1.2.3", "0.9").startswith("ferrule (0.9) "))
        self.assertEqual(packages.changelog(self.LOG, "1.2.3"), self.LOG)

    def test_bounds(self):
        self.assertEqual(packages.bounds("56.1"), "libibverbs1 (>= 56.1), libibverbs1 (<< 57)")

    def test_the_newest_kernel_of_each_flavour(self):
        releases = ("7.2.12+deb13-amd64", "7.10.1+deb13-cloud-amd64", "7.3.4+deb13-amd64", "7.9.2+deb13-cloud-amd64")
        found = packages.newest(tuple(kernel.Kernel(release, "1") for release in releases))
        self.assertEqual({one.release for one in found}, {releases[1], releases[2]})

    def test_on_the_command_line(self):
        self.assertIsNone(cli.parse(["deb"]).version)
        self.assertEqual(cli.parse(["deb", "--version", "0.0.9~1"]).version, "0.0.9~1")
        for wrong in ("x", "1 2", "1/../2", ""):
            with self.subTest(version=wrong), self.assertRaises(errors.UsageError):
                cli.deb(cli.parse(["deb", "--version", wrong]))


class Dkms(unittest.TestCase):
    def test_kernels_that_are_passed_over(self):
        """They are those that Kbuild would refuse with an error."""
        needs = re.findall(r"^\tdepends on (!?)(\w+)$", (DRIVER / "Kconfig").read_text(), re.MULTILINE)
        conf = (dkms.DKMS / "debian/ferrule-dkms.dkms").read_text()
        told = re.search(r'^BUILD_EXCLUSIVE_CONFIG="(.*)"$', conf, re.MULTILINE)[1]
        self.assertEqual(set(told.split()), {f"{absent}CONFIG_{name}" for absent, name in needs})

    def test_sources_are_those_of_the_module(self):
        names = {str(file) for file in dkms.module_sources()}
        self.assertLessEqual({"Kbuild", "include/uapi/rdma/ferrule-abi.h",
                              "include/uapi/rdma/ferrule_user_ioctl_cmds.h", "rust/bindings/parameters",
                              "drivers/infiniband/sw/ferrule/engine/src/lib.rs"}, names)
        self.assertEqual([name for name in names if "/tests/" in name or name.startswith("tests") or "/fuzz/" in name], [])

    def test_rustc(self):
        config = "CONFIG_RUST=y\nCONFIG_RUSTC_VERSION=108501\n"
        self.assertEqual(dkms.rustc_bounds([config, config]), "rustc (>= 1.85), rustc (<< 1.86)")
        for others in ([config, config.replace("1085", "1097")], ["CONFIG_RUST=n\n"]):
            with self.subTest(configs=others), self.assertRaises(errors.LabError):
                dkms.rustc_bounds(others)

    def test_on_the_command_line(self):
        self.assertFalse(cli.parse(["deb"]).dkms)
        self.assertTrue(cli.parse(["deb", "--dkms"]).dkms)


class ManualPages(unittest.TestCase):
    def test_counters(self):
        shown = re.findall(r'c"(\w+)":', (DRIVER / "soft/statistics.rs").read_text())
        told = re.findall(r"^\.TP\n\.B (\w+)$", page("ferrule.4").split(".SH COUNTERS")[1].split(".SH ")[0], re.MULTILINE)
        self.assertTrue(shown)
        self.assertEqual(set(told), set(shown))
        self.assertEqual(len(told), len(set(told)))

    def test_tracepoints(self):
        """Each is there, with its fields behind a colon; what stands in parentheses explains one."""
        header = (DRIVER / "trace/ferrule_trace.h").read_text()
        there = dict(re.findall(r"^TRACE_EVENT\((\w+),\n\tTP_PROTO\([^)]*\),\n\tTP_ARGS\(([^)]*)\)", header, re.MULTILINE))
        self.assertEqual(len(there), header.count("TRACE_EVENT("))
        section = page("ferrule.4").split(".SH TRACEPOINTS")[1].split(".SH ")[0]
        told = dict(re.findall(r"^\.B (\w+)\n[^:]*: ([^.]*)\.", re.sub(r"\s*\([^)]*\)", "", section), re.MULTILINE))
        self.assertEqual({name: fields.split() for name, fields in told.items()},
                         {name: fields.split() for name, fields in there.items()})

    def test_debugfs(self):
        there = re.findall(r'_file\(c"(\w+)"', (DRIVER / "soft/debugfs.rs").read_text())
        self.assertTrue(there)
        self.assertEqual(set(re.findall(r"^\.I /sys/kernel/debug/ferrule/NAME/(\w+)$", page("ferrule.4"), re.MULTILINE)),
                         set(there))

    def test_commands_and_options_of_the_lab(self):
        text = page("ferrule-lab.1")
        told = set(re.findall(r"--[a-z][a-z-]*", text.split(".SH OPTIONS")[1].split(".SH ")[0]))
        options = set()
        for name, sub in cli.parser()._subparsers._group_actions[0].choices.items():
            self.assertIn(f'"qemu/lab {name}"', text)
            options |= {word for action in sub._actions for word in action.option_strings if word.startswith("--")}
        self.assertEqual(told, options - {"--help"})

    def test_values_of_options_of_the_lab(self):
        commands = cli.parser()._subparsers._group_actions[0].choices

        def choices(command: str) -> dict[str, set[str]]:
            return {action.option_strings[-1]: {str(value) for value in action.choices}
                    for action in commands[command]._actions if action.choices and action.option_strings}

        run, others = page("ferrule-lab.1").split(".SS run and shell")[1].split(".SS build")
        told = re.findall(r'^\.BR (--[a-z-]+) " " (.*)$', run, re.MULTILINE)
        # Those of node 2 have the values of the option without that word.
        self.assertEqual({option: set(values.split(" | ")) for option, values in told},
                         {option: values for option, values in choices("run").items() if not option.startswith("--peer-")})
        names = ("build", "install", "exec")
        told = set(re.findall(r"^\.BR? ([a-z-]+)", others.split(".TP\n")[1], re.MULTILINE)) - {*names}
        self.assertEqual(told, set().union(*(choices(name)["--kernel"] for name in names)))

    def test_environment_of_the_lab(self):
        names = set(re.findall(r"FERRULE_[A-Z]+", cli.USAGE))
        self.assertEqual(set(re.findall(r"FERRULE_[A-Z]+", page("ferrule-lab.1"))), names)


if __name__ == "__main__":
    unittest.main()
