# SPDX-License-Identifier: GPL-2.0
"""The nodes of a run: starting QEMU, talking to the agents, ending it all, and judging the kernels' logs."""

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from . import accel, cache, image, junit, kernlog, nic, system, tree
from .backend import Soft
from .channel import Channel
from .errors import LAB_FAILED, REPORT, TIMEOUT
from .ui import say, seconds, tail

KEPT_RUNS = 30
POWER_OFF_SECONDS = 20
GONE_SECONDS = 5
SHOWN_REPORTS = 5

# How a process ends that finds a fault in itself, by its own status and by a shell's for it.
ABORTED = {sign for number in (signal.SIGABRT, signal.SIGSEGV) for sign in (-number, 128 + number)}


@dataclass
class Plan:
    """The command to run, and the guest that it runs in."""

    argv: list[str]
    device: str
    kernel: object
    parts: list[tuple[Path, str]]
    nodes: int = 1
    peer: str | None = None
    peer_device: str | None = None
    share: Path | None = None
    smp: int = 2
    mem: int = 1024
    timeout: float | None = None
    append: str = ""
    stacks: bool = False
    tty: bool = False
    backend: Soft = field(default_factory=Soft)
    peer_kernel: object = None  # of node 2, if it is of another architecture; and its parts
    peer_parts: list[tuple[Path, str]] | None = None
    system: Path | None = None  # of system.image(): what boots in the place of the lab's own guest
    junit: Path | None = None

    def boots(self, node: int) -> tuple[object, list[tuple[Path, str]]]:
        """The kernel of a node, and the directories that it has below /ferrule."""
        return (self.peer_kernel, self.peer_parts) if node == 2 and self.peer_kernel else (self.kernel, self.parts)


@dataclass
class Node:
    """One virtual machine."""

    number: int
    directory: Path
    channel: Channel = field(default_factory=Channel)
    process: subprocess.Popen | None = None

    @property
    def console(self) -> Path:
        return self.directory / f"node{self.number}.log"

    @property
    def qemu_log(self) -> Path:
        return self.directory / f"node{self.number}.qemu.log"

    @property
    def parts(self) -> Path:
        return self.directory / f"node{self.number}.parts"

    def start(self, plan: Plan, accelerator: list[str], cable: socket.socket | None) -> None:
        kernel = plan.boots(self.number)[0]
        arch = kernel.arch
        ethernet = plan.backend.ethernet(self.number, cable)
        netdev = "eth0" if ethernet else "dummy0"
        device = plan.device if self.number == 1 else plan.peer_device or plan.device
        # Warnings have to reach the console, and a test's lines to /dev/kmsg too, however many there are.
        append = [f"console={arch.console}", "panic=-1", "oops=panic", "loglevel=7", "printk.devkmsg=on", "net.ifnames=0",
                  f"lab.node={self.number}", f"lab.netdev={netdev}", f"lab.device={plan.backend.guest_device(self.number, device)}",
                  *(system.BOOT_WORDS if plan.system else kernel.boot_words)]
        if "tcg" in accelerator[1]:
            # Nobody attacks this kernel, and a busy host must not look like a stall. Nor like a clock that drifts: the
            # TSC is the host's clock, but its watchdog takes it for unstable when a processor has to wait for the host,
            # and then the clock is the HPET, which is slow; at boot, Linux 7.2 may even wait for ever. Nor like a timer
            # that does not tick: Linux would panic at boot ("IO-APIC + timer doesn't work!").
            append += ["mitigations=off", "rcupdate.rcu_cpu_stall_timeout=90", "watchdog_thresh=40"]
            append += [] if arch.crossed else ["tsc=nowatchdog", "no_timer_check"]
        if plan.share:
            append.append("lab.share")
        if not plan.tty:
            append.append("lab.still")
        if plan.append:
            append.append(plan.append)
        argv = [arch.qemu, "-nodefaults", "-no-user-config", "-name", f"ferrule-node{self.number}",
                *plan.backend.machine(plan.mem, arch), *accelerator, "-m", plan.mem,
                "-smp", kernel.processors(max(plan.smp, plan.backend.processors)),
                "-display", "none", "-serial", f"file:run/lab/{self.console.name}", "-append", " ".join(append),
                "-device", "virtio-serial-pci", "-chardev", f"socket,id=lab,fd={self.channel.guest_end.fileno()}",
                "-device", "virtserialport,chardev=lab,name=ferrule.lab",
                "-device", "virtio-rng-pci",
                # For the tests of PCI drivers. Its engine reaches the first 4 GiB.
                "-device", f"edu,dma_mask={2**32 - 1}",
                *plan.backend.function(self.number)]
        words, places = self._system(plan) if plan.system else self._lab_guest(plan)
        argv += words
        binds = [(self.directory, "/run/lab"), *places]
        if plan.share:
            argv += _folder("share", "lab/share")
            binds.append((plan.share, "/lab/share"))
        passed = [self.channel.guest_end.fileno()]
        if ethernet:
            argv += _ethernet(self.number, ethernet)
        if cable:
            passed.append(cable.fileno())
        with self.qemu_log.open("wb") as log:
            words = tree.command(argv, binds, root=tree.tools(arch) if arch.crossed else plan.backend.qemu)
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=tree.environment(),
                                            pass_fds=passed, start_new_session=True)
        self.channel.started()

    def _lab_guest(self, plan: Plan) -> tuple[list[str], list[tuple]]:
        """QEMU's words for what the lab's own guest boots, and what they name, with its place there."""
        empty = self.directory / "parts"
        empty.mkdir(exist_ok=True)
        words = ["-no-reboot", "-kernel", "lab/kernel/vmlinuz", "-initrd", "lab/initramfs",
                 *_disk("root", "lab/root.erofs"), *_disk("modules", "lab/kernel/modules.erofs"),
                 *_folder("ferrule", "lab/parts", ",readonly=on")]
        kernel, parts = plan.boots(self.number)
        return words, [(kernel.image, "/lab/kernel"), (image.root(plan.stacks, kernel.arch), "/lab/root.erofs"),
                       (image.initramfs(kernel.image / "modules", kernel.arch), "/lab/initramfs"), (empty, "/lab/parts"),
                       *_places(parts)]

    def _system(self, plan: Plan) -> tuple[list[str], list[tuple]]:
        """The same for a whole system. Its writes stay for as long as its QEMU lives, over its reboots."""
        # Not every kernel of Debian's has the file system of a shared folder.
        tree.output(["mkfs.erofs", "--quiet", "--all-root", "-L", system.LABEL, f"/run/lab/{self.parts.name}", "/lab/parts"],
                    [(self.directory, "/run/lab"), *_places(plan.parts)])
        words = ["-kernel", "lab/system/vmlinuz", "-initrd", "lab/system/initrd",
                 *_disk("root", "lab/system/disk", "snapshot=on"), *_disk("parts", f"run/lab/{self.parts.name}"),
                 "-netdev", "hubport,id=net,hubid=0", "-device", "virtio-net-pci,netdev=net,romfile="]
        return words, [(plan.system, "/lab/system")]

    def end(self) -> None:
        """End this node's QEMU, if it still runs."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.parts.unlink(missing_ok=True)

    def broken(self) -> str | None:
        """QEMU's last words, if it ended by a fault of its own."""
        if not self.process or self.process.returncode not in ABORTED:
            return None
        said = self.qemu_log.read_text(errors="replace").splitlines()
        return said[-1] if said else "it said nothing"

    def reports(self) -> list[kernlog.Report]:
        try:
            return kernlog.scan(self.console.read_text(errors="replace"))
        except FileNotFoundError:
            return []


def _places(parts: list[tuple[Path, str]]) -> list[tuple]:
    return [(path, f"/lab/parts/{name}") for path, name in parts]


def _disk(name: str, path: str, mode: str = "readonly=on") -> list[str]:
    return ["-drive", f"if=none,id={name},file={path},format=raw,{mode},cache=unsafe",
            "-device", f"virtio-blk-pci,drive={name}"]


def _folder(tag: str, path: str, more: str = "") -> list[str]:
    return ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}"]


def _ethernet(node: int, other_end: str) -> list[str]:
    return ["-netdev", f"stream,id=net,server=off,{other_end}",
            "-device", f"virtio-net-pci,netdev=net,host_mtu=9000,mac={nic.mac(node)},romfile="]


def run(plan: Plan) -> int:
    """Run the plan's command; returns the exit status that the lab ends with."""
    accelerators = []
    for number in range(1, plan.nodes + 1):
        kernel = plan.boots(number)[0]
        accelerator, why = accel.choose(plan.backend.qemu, kernel.arch)
        accelerators.append(accelerator)
        if number == 1 or plan.peer_kernel:
            say(f"Linux {kernel.release} under {why}")
    session, status = _attempt(plan, accelerators)
    if broken := session.broken():
        # It happens once in thousands of boots, while Linux sets up the buses, and tells nothing of what is to be run.
        say(f"QEMU itself has failed ({broken}), and is started once more")
        session, status = _attempt(plan, accelerators)
    status, problems = _judge(session, status)
    if session.report:
        session.report.write(status, problems)
    return status


def _attempt(plan: Plan, accelerators: list[list[str]]) -> tuple["Session", int]:
    """The nodes from their start to their end; returns the status that came of it."""
    directory = new_directory()
    nodes = [Node(number, directory) for number in range(1, plan.nodes + 1)]
    cables: list[socket.socket | None] = [None]
    if plan.nodes == 2:
        cables = list(socket.socketpair())
    with plan.backend.beside(directory, plan.nodes) as processes:
        session = Session(plan, nodes, processes)
        try:
            for node, accelerator, cable in zip(nodes, accelerators, cables):
                node.start(plan, accelerator, cable)
                if cable:
                    cable.close()
            return session, session.serve()
        finally:
            for node in nodes:
                node.end()


class Session:
    """A run from the first boot to the last power-off, as a loop over what the agents send."""

    def __init__(self, plan: Plan, nodes: list[Node], processes: Sequence[nic.Process] = ()):
        self.plan = plan
        self.nodes = nodes
        self.processes = processes
        self.up = {node.number for node in nodes}
        self.here: set[int] = set()
        self.boots = 0
        self.status: int | None = None
        self.deadline = time.monotonic() + plan.timeout if plan.timeout else None
        self.selector = selectors.DefaultSelector()
        self.peer_line = b""
        self.timed_out = False
        self.report = junit.Report(plan.junit, plan.argv) if plan.junit else None

    def serve(self) -> int:
        for node in self.nodes:
            self.selector.register(node.channel, selectors.EVENT_READ, lambda node=node: self.from_guest(node))
        for process in self.processes:
            self.selector.register(process.death, selectors.EVENT_READ, lambda process=process: self.process_ended(process))
        with _raw_terminal(self.plan.tty):
            while self.up:
                if self.deadline is not None and time.monotonic() >= self.deadline:
                    if not self.past_deadline():
                        break
                limit = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
                for key, _ in self.selector.select(limit):
                    key.data()
        if self.peer_line:
            self.output(self.nodes[-1], "O", b"\n")
        if self.timed_out:
            return TIMEOUT
        return LAB_FAILED if self.status is None else self.status

    def broken(self) -> str | None:
        """QEMU's last words, if a fault of its own ended it before the command could begin."""
        if len(self.here) == len(self.nodes):
            return None
        return next(filter(None, (node.broken() for node in self.nodes)), None)

    def past_deadline(self) -> bool:
        """The time is over: first ask the guests what hangs, then give up."""
        if self.status is not None or self.timed_out:
            return False
        self.timed_out = True
        say(f"timeout after {seconds(self.plan.timeout)}; the nodes' kernel logs list the tasks that were blocked")
        for node in self.nodes:
            node.channel.send("D")
        self.deadline = time.monotonic() + 2
        return True

    def from_guest(self, node: Node) -> None:
        frames = node.channel.receive()
        if frames is None:
            self.gone(node)
            return
        for letter, content in frames:
            if letter == "H":
                self.arrived(node, content)
            elif letter in "OE":
                self.output(node, letter, content)
            elif letter == "X":
                self.exited(node, content)

    def gone(self, node: Node) -> None:
        self.selector.unregister(node.channel)
        self.up.discard(node.number)
        with suppress(subprocess.TimeoutExpired):
            # A second waiter would not learn how it has ended.
            node.process.wait(GONE_SECONDS)
        if self.status is None and not self.timed_out:
            say(f"node {node.number} went down before the command had ended; the end of its console:")
            print(tail(node.console) or tail(node.qemu_log), file=sys.stderr)
            self.finish(LAB_FAILED)

    def process_ended(self, process: nic.Process) -> None:
        """The guests live on without it."""
        self.selector.unregister(process.death)
        say("ferrule-nic has ended, and the guests go on without it")

    def arrived(self, node: Node, content: bytes) -> None:
        failure = json.loads(content)
        if failure:
            say(f"node {node.number} could not bring up its device: {failure}")
            self.finish(LAB_FAILED)
            return
        self.here.add(node.number)
        if len(self.here) == len(self.nodes):
            if self.plan.peer:
                self.nodes[1].channel.send_json("R", {"argv": ["sh", "-c", self.plan.peer]})
            self.begin(self.nodes[0])

    def begin(self, node: Node) -> None:
        """Begin the command: in a whole system, anew after each reboot."""
        self.boots += 1
        request = {"argv": self.plan.argv, "tty": self.plan.tty, "env": {"LAB_BOOT": str(self.boots)}}
        if self.plan.tty:
            request |= _window()
            request["env"]["TERM"] = os.environ.get("TERM", "dumb")
            self.selector.register(sys.stdin, selectors.EVENT_READ, lambda: self.typed(node))
            signal.signal(signal.SIGWINCH, lambda *_: node.channel.send_json("W", _window()))
        node.channel.send_json("R", request)

    def typed(self, node: Node) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        node.channel.send("I" if data else "C", data)
        if not data:
            self.selector.unregister(sys.stdin)

    def output(self, node: Node, letter: str, content: bytes) -> None:
        if node.number == 1:
            if self.report and letter == "O":
                self.report.feed(content)
            stream = sys.stdout.buffer if letter == "O" else sys.stderr.buffer
            stream.write(content)
            stream.flush()
            return
        self.peer_line += content
        *lines, self.peer_line = self.peer_line.split(b"\n")
        for line in lines:
            sys.stderr.buffer.write(b"node2: " + line + b"\n")
        sys.stderr.flush()

    def exited(self, node: Node, content: bytes) -> None:
        status = json.loads(content)["status"]
        if node.number == 1:
            self.finish(status)
        elif status != 0 and self.status is None:
            say(f"the peer on node {node.number} ended with status {status}")

    def finish(self, status: int) -> None:
        """The command has ended: let the nodes power off, within a limit."""
        if self.status is None:
            self.status = status
            self.deadline = time.monotonic() + POWER_OFF_SECONDS
            if self.plan.tty and sys.stdin in [key.fileobj for key in self.selector.get_map().values()]:
                self.selector.unregister(sys.stdin)
            for node in self.nodes:
                node.channel.send("Q")


def _judge(session: Session, status: int) -> tuple[int, list[str]]:
    """Print what the kernels reported, and the faults of processes beside them, and return it; each overrules every other
    status."""
    found = [fault for process in session.processes if (fault := process.fault())]
    for fault in found:
        say(fault)
    for node in session.nodes:
        reports = node.reports()
        for report in reports[:SHOWN_REPORTS]:
            say(f"node {node.number}'s kernel reports ({report.kind}): {report.title}")
            print(kernlog.show(report), file=sys.stderr)
        if reports:
            found += [f"node {node.number}: {report.title}\n" + "\n".join(report.lines) for report in reports]
            say(f"{len(reports)} kernel report(s) on node {node.number}; its whole log is {node.console}")
    return (REPORT if found else status), found


def _window() -> dict[str, int]:
    size = shutil.get_terminal_size()
    return {"rows": size.lines, "columns": size.columns}


@contextmanager
def _raw_terminal(wanted: bool):
    if not wanted:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def new_directory() -> Path:
    """A directory for this run's logs, which ends with this process's number; the oldest ones beyond KEPT_RUNS go, but
    none of a run that is under way."""
    runs = cache.root() / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    # Labs that begin together would remove the same ones.
    with cache.lock("runs"):
        old = [path for path in runs.iterdir() if path.is_dir() and not Path("/proc", path.name.split("-")[-1]).exists()]
        old.sort(key=lambda path: path.stat().st_mtime)
        for path in old[:-KEPT_RUNS]:
            cache.remove(path)
    directory = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    # The second attempt of a run may begin within the same second.
    directory.mkdir(exist_ok=True)
    return directory
