# SPDX-License-Identifier: GPL-2.0
"""Tests of what the lab starts for each backend (qemu/labkit/backend.py, nic.py): QEMU's words and version, and the process
beside QEMU, with other programs in its place."""

import contextlib
import io
import json
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "qemu"))

from labkit import backend, guest, nic
from labkit.arch import AMD64
from labkit.errors import REPORT, LabError

# The version line of Debian's QEMU.
DEBIAN = "QEMU emulator version {} (Debian 1:{}+ds-1~bpo13+1)\nCopyright (c) 2003-2026 Fabrice Bellard\n"

WAITS = "echo 'INFO node1.sock: waits for a client' >&2; "

# A program that ends as ferrule-nic does when it is told to.
SERVES = f"trap 'kill $!; exit 0' TERM; sleep 60 & {WAITS} wait"

# The programs above ferrule-nic: the lab's child, and the first process of a namespace. There is none here, so a file tells
# that nobody is left in it.
ABOVE = '"$@"; exit $?'
FIRST = nic.FIRST.replace("kill -0 -1", "[ ! -e gone ]")


class Version(unittest.TestCase):
    def test_as_qemu_prints_it(self):
        self.assertEqual(nic.version_of(DEBIAN.format("11.1.3", "11.1.3")), (11, 1, 3))
        self.assertEqual(nic.version_of("QEMU emulator version 10.1.92 (v10.2.0-rc2)"), (10, 1, 92))
        self.assertEqual(nic.version_of("QEMU emulator version 12.0"), (12, 0))

    def test_no_version(self):
        for text in ("", "qemu: command not found", "QEMU emulator version x"):
            with self.assertRaises(LabError):
                nic.version_of(text)

    def test_new_enough(self):
        for version in ("10.1.1", "10.2.0", "11.0", "11.1.3"):
            nic.check_version(DEBIAN.format(version, version))

    def test_too_old(self):
        for version in ("7.2.0", "10.0.11", "10.1.0", "10.1"):
            with self.assertRaisesRegex(LabError, rf"^this QEMU is {version}, .* needs 10\.1\.1: .*FERRULE_MIRROR"):
                nic.check_version(DEBIAN.format(version, version))


class Words(unittest.TestCase):
    def test_memory_is_shared(self):
        words = nic.machine(1024)
        self.assertEqual(words[:2], ["-machine", "q35,memory-backend=ram"])
        self.assertEqual(words[3].split(","), ["memory-backend-memfd", "id=ram", "size=1024M", "share=on"])

    def test_each_node_has_a_socket_of_its_own(self):
        paths = [json.loads(nic.function(node)[-1])["socket"]["path"] for node in (1, 2)]
        self.assertEqual(paths, ["/run/lab/node1.sock", "/run/lab/node2.sock"])

    def test_the_function_is_in_the_slot(self):
        _, port, _, function = nic.function(1)
        self.assertIn(f"id={json.loads(function)['bus']}", port.split(","))

    def test_without_a_function(self):
        soft = backend.Soft()
        self.assertEqual((soft.machine(1024, AMD64), soft.function(1), soft.guest_device(1, "ferrule")),
                         (["-machine", "q35"], [], "ferrule"))

    def test_ethernet_where_there_is_a_cable(self):
        with contextlib.closing(socket.socket()) as cable:
            self.assertEqual(backend.Soft().ethernet(1, cable), f"addr.type=fd,addr.str={cable.fileno()}")
        self.assertIsNone(backend.Soft().ethernet(1, None))

    def test_ethernet_by_the_switch(self):
        with contextlib.closing(socket.socket()) as cable:
            self.assertEqual(self.served().ethernet(2, cable), "addr.type=unix,addr.path=/run/lab/node2.net")
        self.assertIsNone(self.served().ethernet(1, None))

    def served(self, *names, **more):
        with unittest.mock.patch.multiple(nic, qemu=lambda: Path("/"), build=lambda: Path("/bin/true")):
            return backend.choose(names or ("nic", "nic"), **more)

    def test_a_backend_for_each_node(self):
        self.assertIs(type(self.served("soft", "soft")), backend.Soft)
        both = self.served("nic", "soft")
        self.assertEqual([both.guest_device(node, "ferrule") for node in (1, 2)], ["ferrule-nic", "ferrule"])
        self.assertEqual([bool(both.function(node)) for node in (1, 2)], [True, False])

    def processes(self, served, nodes):
        """Of each process its nodes, and what it is told besides."""
        told = []

        def start(_program, _directory, some, more):
            told.append((list(some), more))
            return unittest.mock.Mock()

        with unittest.mock.patch.object(nic, "Process", start), served.beside(Path("/"), nodes) as processes:
            self.assertEqual(len(processes), len(told))
        for process in processes:
            process.end.assert_called_once_with()
        return told

    def test_one_process_or_one_for_each_node(self):
        self.assertEqual(self.processes(self.served(), 2), [([1, 2], [])])
        self.assertEqual(self.processes(self.served(wire_only=True), 1), [([1], ["--wire-only"])])
        self.assertEqual(self.processes(self.served(linked=True), 2),
                         [([1], ["--link=listen=/run/lab/link.sock"]), ([2], ["--link=connect=/run/lab/link.sock"])])

    def test_the_guest_is_told_whose_device_it_is(self):
        served = self.served()
        self.assertEqual([served.guest_device(1, device) for device in ("ferrule", "rxe", "none")],
                         ["ferrule-nic", "rxe", "none"])


class Process(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def process(self, script, nodes=1, is_ended=False, above=()):
        """The process, with a shell script in its place."""
        with (unittest.mock.patch.object(nic.tree, "command", lambda *_: [*above, "sh", "-c", script]),
              unittest.mock.patch.object(nic, "START_SECONDS", 1)):
            process = nic.Process(Path("ferrule-nic"), self.directory, range(1, nodes + 1))
        if not is_ended:
            self.addCleanup(process.end)
        return process

    def test_it_runs_until_it_is_ended(self):
        # The program is the child of its namespace's first process, which is one of the process's.
        process = self.process(WAITS + "sh -c 'sleep 60; true'; true")
        self.assertTrue(process.alive())
        process.kill()
        self.assertFalse(process.alive())
        self.assertIsNone(process.fault())

    def served(self, script, nodes=1):
        """The process in a namespace, with a shell script in the place of the program."""
        (self.directory / "gone").touch()
        first = ["env", f"--chdir={self.directory}", "sh", "-c", FIRST, "sh"]
        return self.process(script, nodes, is_ended=True, above=["sh", "-c", ABOVE, "sh", *first])

    def test_its_end_is_no_fault(self):
        process = self.served(SERVES)
        process.end()
        self.assertIsNone(process.fault())

    def test_another_status_than_0_is_one_when_it_is_told_to_end(self):
        for end, status in (("exit 3", 3), ("kill -SEGV $$", 128 + signal.SIGSEGV)):
            process = self.served(SERVES.replace("exit 0", end))
            process.end()
            self.assertIn(f"ended with status {status}", process.fault())

    def test_that_it_does_not_end_is_one(self):
        with unittest.mock.patch.object(nic, "END_SECONDS", 0.2):
            process = self.served(f"trap '' TERM; {WAITS} sleep 1; sleep 1")
            process.end()
        self.assertIn(f"ended with status -{signal.SIGKILL:d}", process.fault())

    def test_its_death_is_one_while_its_keeper_lives(self):
        process = self.served(f"rm gone; echo $$ > program; {WAITS} exit 3")
        program = Path("/proc", (self.directory / "program").read_text().strip())
        while program.exists():
            time.sleep(0.02)
        self.assertTrue(process.alive())
        threading.Timer(0.2, (self.directory / "gone").touch).start()
        process.end()
        self.assertIn("ended with status 3", process.fault())

    def test_its_own_end_is_one_although_the_lab_ends_it(self):
        process = self.process(WAITS + "exit 3", is_ended=True)
        process._process.wait()
        process.end()
        self.assertIn("ended with status 3", process.fault())

    def test_the_end_of_a_thread_is_one(self):
        process = self.served("echo \"thread 'switch' panicked at src/switch.rs:7:9:\" >&2; " + SERVES)
        self.addCleanup(process.end)
        deadline = time.monotonic() + 10
        while not process.fault() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertIn("panicked: thread 'switch' panicked at src/switch.rs:7:9:", process.fault())

    def test_it_ends_before_it_listens(self):
        with self.assertRaisesRegex(LabError, r"ended with status 3; .*\n.*no such socket"):
            self.process("echo no such socket >&2; exit 3")

    def test_it_does_not_listen_for_all(self):
        with self.assertRaisesRegex(LabError, "does not listen after 1 s"):
            self.served(SERVES, nodes=2)

    def test_a_lab_that_is_killed_leaves_none_behind(self):
        lab = multiprocessing.get_context("fork")
        ours, theirs = lab.Pipe()

        def die():
            theirs.send(self.process(WAITS + "exec sleep 60").pid)
            os.kill(os.getpid(), signal.SIGKILL)

        killed = lab.Process(target=die)
        killed.start()
        process = os.pidfd_open(ours.recv())
        killed.join()
        self.assertEqual(select.select([process], [], [], 10)[0], [process])
        os.close(process)

    def test_its_death_is_a_fault_and_the_guest_goes_on(self):
        process = self.process(WAITS + "echo 'ERROR out of luck' >&2; exit 1")

        def start(node, *_):
            # The words of a node's agent when it is there, and when the command has ended with status 7.
            script = r"""printf 'H\004\000\000\000null'; sleep 0.5; printf 'X\015\000\000\000{"status": 7}'"""
            node.process = subprocess.Popen(["sh", "-c", script], stdin=node.channel.guest_end,
                                            stdout=node.channel.guest_end)
            node.channel.started()

        served = backend.Soft()
        served.beside = lambda *_: contextlib.nullcontext([process])
        plan = guest.Plan(argv=["true"], device="none", kernel=SimpleNamespace(release="0", arch=AMD64), parts=[], timeout=20,
                          backend=served)
        said = io.StringIO()
        with (contextlib.redirect_stderr(said), unittest.mock.patch.object(guest.Node, "start", start),
              unittest.mock.patch.object(guest.accel, "choose", lambda _qemu, _arch: ([], "nothing")),
              unittest.mock.patch.object(guest, "new_directory", lambda: self.directory)):
            status = guest.run(plan)
        self.assertEqual(status, REPORT)
        self.assertRegex(said.getvalue(), r"ferrule-nic has ended with status 1; the end of its log:\n(  \| .*\n)*.*out of luck")


if __name__ == "__main__":
    unittest.main()
