# SPDX-License-Identifier: GPL-2.0
"""The commands of the lab."""

import argparse
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import (accel, archive, backend, bundle, cache, debian, debug, dkms, frozen, guest, image, kernel, module, nic,
               packages, programs, provider, rust, suite, system, tree, unsound)
from .arch import ALL, AMD64, Arch
from .errors import LAB_FAILED, LabError, Stopped, UsageError
from .ui import say

USAGE = """\
NAME
    lab - build Ferrule and run programs on it in virtual machines

SYNOPSIS
    qemu/lab run   [OPTION…] -- CMD [ARG…]   run a program in a guest
    qemu/lab shell [OPTION…]                 a shell in a guest, on this terminal
    qemu/lab build [OPTION…] [WHAT…]         build the module, the provider, the test programs
    qemu/lab install [--kernel KERNEL] [ROOT]
                                             install the module
    qemu/lab deb   [OPTION…]                 make Debian packages of module and provider
    qemu/lab bundle [OPTION…]                make an archive with `run` and `shell` for machines without a checkout
    qemu/lab exec  [OPTION…] -- CMD [ARG…]   run a program in the build tree, at the checkout
    qemu/lab rust  fmt|doc|analyzer|unsound  rustfmt, rustdoc, rust-analyzer's project file, and what must not compile
    qemu/lab setup [--refresh]               make all that the other commands need
    qemu/lab clean [--all]                   remove what was not used lately
    qemu/lab COMMAND --help                  the options of a command

DESCRIPTION
    All software comes from Debian 13, or from FERRULE_SUITE, whatever the host runs: compilers and QEMU from a build
    tree, the guest's programs from a guest image. The lab makes both the first time they are needed, with mmdebstrap,
    which is all that it wants from the host besides Python; it needs no root. Builds are kept outside the checkout, in
    entries named by what went into them.

EXIT STATUS
    of `run` and `shell`: the command's own (128 and the signal's number where a signal ended it); and
    124  the timeout was reached
    125  a node's kernel log has a report (oops, BUG, WARNING, lockdep, KASAN, UBSAN, kmemleak, hung task, soft lockup,
         RCU stall, refcount, lost reference, panic), or ferrule-nic has ended or panicked, even where the command
         succeeded; the report is printed
    126  the lab itself failed, for example because a device did not come up
    of the others: 0, or 1 where something does not build; 126 where the lab itself failed
    of all: 2 for a wrong command line

ENVIRONMENT
    FERRULE_CACHE    directory of the cache (default: ferrule in $XDG_CACHE_HOME or ~/.cache)
    FERRULE_KERNEL   kernel to use as the stock kernel, by series (7.2) or version (7.3.2)
    FERRULE_SUITE    suite of Debian's to take everything from: trixie, forky, sid or experimental (default: trixie)
    FERRULE_MIRROR   URI of the Debian mirror (default: the one that this machine's apt uses)
    FERRULE_ACCEL    kvm or tcg: do not try which one works; icount: tcg with a clock that counts instructions, so
                     that a program measures the same on a busy machine

FILES
    qemu/packages.txt    the Debian packages in a guest
    qemu/stacks.txt      those that it has beside them with --stacks
    CACHE/runs/          the last runs: each node's kernel log, and QEMU's messages
    CACHE/logs/          what the builds printed
"""

DEVICES = ("ferrule", "rxe", "none")
KERNELS = ("stock", "rt", *debug.FRAGMENTS)
SYSTEM_KERNELS = ("stock", "cloud")


class Parser(argparse.ArgumentParser):
    """A parser that tells an error in one line."""

    def error(self, message):
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def parser() -> Parser:
    top = Parser(prog=bundle.NAME if frozen.here() else "qemu/lab", add_help=False, allow_abbrev=False)
    top.add_argument("-h", "--help", action="store_true")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    for name, what in (("run", "run a program in a guest"), ("shell", "a shell in a guest, on this terminal")):
        sub = commands.add_parser(name, help=what, description=RUN_TEXT, allow_abbrev=False,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        _guest_options(sub, None if name == "shell" else 300)
        if name == "run":
            sub.usage = sub.format_usage().removeprefix("usage: ").rstrip() + " -- CMD [ARG…]"

    sub = commands.add_parser("build", help="build the module, the provider, the test programs", allow_abbrev=False,
                              description="Builds what is named (all of it where nothing is) into build/ of the checkout.")
    sub.add_argument("what", nargs="*", metavar="WHAT",
                     help="module, provider, provider-test, tests, kernel, or nic (what --backend nic needs)")
    sub.add_argument("--kernel", choices=(*KERNELS, "previous", "cloud"), default="stock",
                     help="the kernel that the module is for; `previous` is the series before the stock one")
    sub.add_argument("--arch", choices=ALL, default=AMD64.name, help=f"the architecture that it is for (default: {AMD64.name})")
    sub.add_argument("--clippy", action="store_true", help="lint the module with clippy as it is compiled")

    sub = commands.add_parser("install", help="install the module", allow_abbrev=False,
                              description="Installs ferrule.ko into ROOT/lib/modules/RELEASE/updates of its kernel.")
    sub.add_argument("root", nargs="?", metavar="ROOT", type=Path, default=Path("/"), help="default: /")
    sub.add_argument("--kernel", choices=(*KERNELS, "previous"), default="stock", help="the kernel that the module is for")

    sub = commands.add_parser("deb", help="make Debian packages", allow_abbrev=False,
                              description="Makes the Debian packages that qemu/packaging describes, into DIR.")
    sub.add_argument("--output", metavar="DIR", type=Path, default=programs.products() / "deb",
                     help="the directory for the packages, in the place of those that it has (default: build/deb)")
    sub.add_argument("--dkms", action="store_true",
                     help="also those with which dkms compiles the module: its source, and Rust metadata of each kernel")
    sub.add_argument("--version", metavar="VERSION", help="as if this were the driver's version, to try upgrades")

    sub = commands.add_parser("bundle", help="make an archive that runs guests on any x86-64 Linux", allow_abbrev=False,
                              description="Makes the archive that qemu/packaging/README.md describes, into DIR.")
    sub.add_argument("--output", metavar="DIR", type=Path, default=programs.BUILD / "bundle",
                     help="the directory for the archive (default: build/bundle)")

    sub = commands.add_parser("exec", help="run a program in the build tree", allow_abbrev=False,
                              description="Runs a program in the build tree, at the checkout's own path, with the kernel's "
                                          "source in /kernel/src and KDIR in /kernel/obj. FERRULE_BUILD is the directory of "
                                          "what was built.")
    sub.add_argument("--kernel", choices=(*KERNELS, "previous", "none"), default="none",
                     help="the kernel that is visible at /kernel (default: none)")
    sub.usage = sub.format_usage().removeprefix("usage: ").rstrip() + " -- CMD [ARG…]"

    sub = commands.add_parser("rust", help="rustfmt, rustdoc, rust-analyzer", allow_abbrev=False,
                              description="fmt formats all Rust code as the kernel does; doc makes the documentation of "
                                          "rust/ in build/rustdoc; analyzer writes rust-project.json for editors; unsound "
                                          "compiles tests/unsound, which must fail as it says (TAP).")
    sub.add_argument("tool", choices=("fmt", "doc", "analyzer", "unsound"))
    sub.add_argument("--check", action="store_true", help="with fmt: only look, and fail where something would change")

    sub = commands.add_parser("setup", help="make all that the other commands need", allow_abbrev=False,
                              description="Makes the build tree, the guest image, the kernel and KDIR; root has a missing "
                                          "mmdebstrap installed.")
    sub.add_argument("--refresh", action="store_true", help="read the archive's indexes anew: newer kernels, newer rdma-core")

    sub = commands.add_parser("clean", help="remove what was not used lately", allow_abbrev=False,
                              description="Removes what was not used for a week from the cache, and what was left half made.")
    sub.add_argument("--all", action="store_true", help="remove everything")
    return top


RUN_TEXT = """\
Boots one or two guests, brings up the device on a network device of MTU 9000 (node N has 10.77.0.N/24 and fd77::N/64),
runs the program on node 1, and powers off.

In a guest: /share is DIR; /ferrule/tests and /ferrule/build are the checkout's; /ferrule/module has the modules and
/ferrule/provider the provider, which is installed; rdma-core's tests are in /usr/lib/rdma-core-tests. With one node,
both ends of a test run in that node."""


def _guest_options(sub: argparse.ArgumentParser, timeout: float | None) -> None:
    sub.add_argument("--device", choices=DEVICES, default="ferrule",
                     help="ferrule: ferrule0; rxe: rxe0; none: modules and provider on disk only (default: ferrule)")
    sub.add_argument("--backend", choices=backend.NAMES, default="soft",
                     help="what ferrule0 is: soft: the driver's own engine; nic: a PCI function of ferrule-nic, which runs "
                          "beside QEMU (default: soft)")
    sub.add_argument("--link", action="store_true",
                     help="with two nodes of --backend nic: a ferrule-nic for each, with a link between them")
    sub.add_argument("--wire-only", action="store_true",
                     help="with --backend nic: queue pairs send packets where ferrule-nic could copy")
    sub.add_argument("--kernel", choices=(*KERNELS, *SYSTEM_KERNELS[1:]), default="stock",
                     help="Debian's kernel, or the debug kernel; rt and rt-debug have PREEMPT_RT, kcsan has KCSAN; with --system, "
                          "Debian's for clouds (default: stock)")
    sub.add_argument("--arch", choices=ALL, default=AMD64.name,
                     help=f"the guest's architecture; another than this machine's is emulated (default: {AMD64.name})")
    sub.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="how many guests, on one Ethernet (default: 1)")
    sub.add_argument("--peer", metavar="CMD", help="shell command that runs on node 2 in the background")
    sub.add_argument("--peer-device", choices=DEVICES, help="the device of node 2 (default: that of --device)")
    sub.add_argument("--peer-backend", choices=backend.NAMES, help="the backend of node 2 (default: that of --backend)")
    sub.add_argument("--peer-arch", choices=ALL, help="the architecture of node 2 (default: that of --arch)")
    sub.add_argument("--share", metavar="DIR", help="directory to mount read-write at /share")
    sub.add_argument("--stacks", action="store_true", help="a larger guest image, with UCX, Open MPI and libfabric")
    sub.add_argument("--smp", metavar="N", type=_whole(1, 64), default=2, help="processors of a guest (default: 2)")
    sub.add_argument("--mem", metavar="MiB", type=_whole(256, 1 << 20), help="memory of a guest (default: 1024; debug: 2048)")
    sub.add_argument("--accel", choices=("kvm", "tcg", "icount"), help="for this run, in the place of FERRULE_ACCEL")
    sub.add_argument("--timeout", metavar="S", type=_whole(1, 10**6), default=timeout,
                     help=f"end after so many seconds, boot included (default: {timeout or 'none'})")
    sub.add_argument("--system", action="store_true",
                     help="a whole Debian 13 with systemd and apt; the program begins anew after each reboot (LAB_BOOT=N)")
    sub.add_argument("--junit", metavar="FILE", type=Path,
                     help="write the result there in JUnit's format: the tests that the program tells by TAP, or the program's "
                          "status")
    sub.add_argument("--append", metavar="WORDS", default="", help="more words for the kernel's command line")


def _whole(least: int, most: int):
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return convert


def parse(words: list[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises UsageError when it is wrong.
    """
    suite.check()
    if "--" in words:
        cut = words.index("--")
        words, program = words[:cut], words[cut + 1:]
    else:
        program = []
    options, rest = parser().parse_known_args(words)
    if options.command in ("run", "exec"):
        if rest and not rest[0].startswith("-"):
            raise UsageError(f"{options.command}: the program comes after --, as in: "
                             f"qemu/lab {options.command} [OPTION…] -- {' '.join(rest)}")
        if not program and not rest:
            raise UsageError(f"{options.command}: which program? qemu/lab {options.command} [OPTION…] -- CMD [ARG…]")
    elif program:
        raise UsageError(f"{options.command or 'lab'} takes no program after --")
    if rest:
        raise UsageError(f"unknown option {rest[0]} (see `qemu/lab {options.command or ''} --help`)")
    options.argv = program
    if frozen.here():
        bundle.check_options(options)
    if options.command in ("run", "shell"):
        if options.peer is not None and options.nodes != 2:
            raise UsageError("--peer needs --nodes 2")
        for word, value in (("--peer-device", options.peer_device), ("--peer-backend", options.peer_backend),
                            ("--peer-arch", options.peer_arch)):
            if value is not None and options.nodes != 2:
                raise UsageError(f"{word} needs --nodes 2")
        options.backends = [options.backend, options.peer_backend or options.backend][:options.nodes]
        if options.link and options.backends != ["nic", "nic"]:
            raise UsageError("--link needs two nodes with --backend nic")
        if options.wire_only and options.backend != "nic":
            raise UsageError("--wire-only needs --backend nic; soft has a switch for it in debugfs")
        if "nic" in options.backends and (options.accel or os.environ.get("FERRULE_ACCEL")) == "icount":
            raise UsageError("--backend nic: the function works by the host's clock, so instructions cannot be counted")
        if options.system and (options.device, options.nodes, options.share, options.backend) != ("none", 1, None, "soft"):
            raise UsageError("--system needs --device none, and neither a second node, a share nor another backend")
        options.arches = [ALL[options.arch], ALL[options.peer_arch or options.arch]][:options.nodes]
        if any(arch.crossed for arch in options.arches):
            _check_crossed(options)
        if options.kernel not in (SYSTEM_KERNELS if options.system else KERNELS):
            raise UsageError(f"--kernel {options.kernel} goes {'without' if options.system else 'with'} --system")
        if options.share is not None and not Path(options.share).is_dir():
            raise UsageError(f"--share: {options.share} is not a directory")
        if options.junit is not None and not options.junit.absolute().parent.is_dir():
            raise UsageError(f"--junit: {options.junit.parent} is not a directory")
        if options.mem is None:
            options.mem = 2048 if options.kernel in debug.FRAGMENTS else 1024
    if options.command == "build" and ALL[options.arch].crossed:
        if (options.kernel, options.clippy) != ("stock", False) or {"nic", "provider-test"} & set(options.what):
            raise UsageError(f"--arch {options.arch} is for module, provider, tests and Debian's stock kernel, without --clippy")
        suite.need_trixie(f"--arch {options.arch}")
    if options.command == "bundle":
        suite.need_trixie("bundle")
    if options.command == "shell" and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("shell needs a terminal; qemu/lab run runs a program without one")
    for what in getattr(options, "what", None) or []:
        if what not in BUILDERS:
            raise UsageError(f"build: {what!r} is none of {', '.join(BUILDERS)}")
    return options


def _check_crossed(options: argparse.Namespace) -> None:
    """Refuse what the lab does not have for another architecture than the build tree's."""
    others = {"--kernel": options.kernel != "stock", "--system": options.system, "--backend nic": "nic" in options.backends,
              "--accel kvm": options.accel == "kvm"}
    suite.need_trixie("--arch")
    for word, given in others.items():
        if given:
            raise UsageError(f"{word} is for {AMD64.name} alone")


def main(words: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        options = parse(words)
        if options.help or not options.command:
            print(bundle.USAGE if frozen.here() else USAGE, end="")
            return 0
        return COMMANDS[options.command](options)
    except LabError as error:
        say(str(error))
        return error.status
    except Stopped as stop:
        say("interrupted")
        return stop.status
    except BrokenPipeError:
        return 141
    except OSError as error:
        remedy = f"; free some, or set FERRULE_CACHE to a directory on another disk than {cache.root()}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        say(f"{error.filename or 'the system'}: {error.strerror}{remedy if full else ''}")
        return LAB_FAILED


def _stop(number: int, _frame: object) -> None:
    raise Stopped(number)


def the_kernel(name: str, arch: Arch = AMD64) -> kernel.Kernel:
    if arch.crossed:
        return kernel.stock(arch)
    if name in debug.FRAGMENTS:
        return debug.the_kernel(name)
    others = {"previous": kernel.previous, "cloud": kernel.cloud, "rt": kernel.rt}
    return others.get(name, kernel.stock)()


def parts(target: kernel.Kernel, options: argparse.Namespace) -> list[tuple[Path, str]]:
    """The directories that guests have below /ferrule, each with its name there."""
    if frozen.here():
        return [(frozen.ENTRIES / frozen.PARTS, "")]
    empty = cache.work("empty")
    places = ((tree.CHECKOUT / "tests", "tests"), (programs.products(target.arch), "build"))
    found = [(place if place.is_dir() else empty, name) for place, name in places]
    # rxe needs nothing of the checkout's, so a file that does not compile cannot keep it from running.
    devices = {options.device, options.peer_device or options.device}
    if devices != {"rxe"} and (tree.CHECKOUT / "Kbuild").exists():
        found.append((module.build(target), "module"))
        found.append((provider.build(target.arch), "provider"))
    elif "ferrule" in devices:
        raise LabError("this checkout has no Kbuild, so there is no ferrule yet; --device rxe works")
    return found


def run(options: argparse.Namespace) -> int:
    if frozen.here():
        bundle.check_files()
    target = the_kernel(options.kernel, options.arches[0])
    peer = the_kernel(options.kernel, options.arches[-1]) if options.arches[-1] is not target.arch else None
    shell = options.command == "shell"
    if options.accel:
        os.environ["FERRULE_ACCEL"] = options.accel
    share = Path(options.share).resolve() if options.share else None
    plan = guest.Plan(["bash", "-l"] if shell else options.argv, options.device, target, parts(target, options),
                      nodes=options.nodes,
                      peer=options.peer, peer_device=options.peer_device, share=share, smp=options.smp, mem=options.mem,
                      timeout=options.timeout, append=options.append, stacks=options.stacks, tty=shell,
                      backend=backend.choose(options.backends, options.link, options.wire_only), junit=options.junit,
                      peer_kernel=peer, peer_parts=parts(peer, options) if peer else None)
    if options.system:
        plan.system = system.image(target)
        plan.parts.append((image.GUEST_FILES, "lab"))
    return guest.run(plan)


def build(options: argparse.Namespace) -> int:
    for what in options.what or ("module", "provider", "tests"):
        BUILDERS[what](options)
    return 0


def _build_module(options: argparse.Namespace) -> None:
    arch = ALL[options.arch]
    made = module.build(the_kernel(options.kernel, arch), options.clippy)
    if not options.clippy:
        _publish(made, "" if options.kernel == "stock" else options.kernel, arch)


def _build_provider(options: argparse.Namespace) -> None:
    arch = ALL[options.arch]
    _publish(provider.build(arch), "", arch)


def _build_provider_test(_options: argparse.Namespace) -> None:
    _publish(provider.build_test(), "tests")


def _build_programs(options: argparse.Namespace) -> None:
    programs.build(ALL[options.arch])


def _build_kernel(options: argparse.Namespace) -> None:
    print(the_kernel(options.kernel, ALL[options.arch]).kdir)


def _build_nic(_options: argparse.Namespace) -> None:
    nic.qemu()
    nic.build()


BUILDERS = {"module": _build_module, "provider": _build_provider, "provider-test": _build_provider_test,
            "tests": _build_programs, "kernel": _build_kernel, "nic": _build_nic}


def _publish(made: Path, below: str, arch: Arch = AMD64) -> None:
    """Copy what was built to where a person looks for it."""
    directory = programs.products(arch) / below
    directory.mkdir(parents=True, exist_ok=True)
    for file in made.iterdir():
        if not file.name.startswith("."):
            shutil.copy(file, directory)


def install(options: argparse.Namespace) -> int:
    say(f"installed {module.install(the_kernel(options.kernel), options.root)}")
    return 0


def deb(options: argparse.Namespace) -> int:
    if options.version is not None and not re.fullmatch(r"\d[0-9a-z.+~]*", options.version):
        raise UsageError(f"--version: {options.version!r} is no version of a package")
    made = [packages.build(options.version), *(dkms.build(options.version) if options.dkms else ())]
    options.output.mkdir(parents=True, exist_ok=True)
    for old in options.output.glob("*.deb"):
        old.unlink(missing_ok=True)
    for package in sorted(file for directory in made for file in directory.glob("*.deb")):
        shutil.copy(package, options.output)
        say(f"{options.output / package.name}")
    return 0


def make_bundle(options: argparse.Namespace) -> int:
    options.output.mkdir(parents=True, exist_ok=True)
    for file in sorted(bundle.build().glob("ferrule-lab*")):
        shutil.copy(file, options.output)
        say(f"{options.output / file.name}, {file.stat().st_size / 1e6:.1f} MB")
    return 0


def execute(options: argparse.Namespace) -> int:
    binds = [] if options.kernel == "none" else the_kernel(options.kernel).binds
    words = tree.command(options.argv, binds, tree.CHECKOUT)
    return subprocess.run(words, env=tree.environment({"FERRULE_BUILD": str(programs.products())})).returncode


def setup(options: argparse.Namespace) -> int:
    debian.need_tools(install=True)
    for arch in ALL.values() if options.refresh else ():
        if not arch.crossed or archive.is_known(arch):
            archive.refresh(arch)
    stock = kernel.stock()
    say(f"Linux {stock.release} is the stock kernel")
    image.root()
    provider.source()
    stock.kdir
    accel.choose()
    say(f"all is there, in {cache.root()}")
    return 0


def clean(options: argparse.Namespace) -> int:
    count = cache.clean(0 if options.all else 7)
    say(f"removed {count} from {cache.root()}")
    return 0


def rust_tools(options: argparse.Namespace) -> int:
    if options.tool == "fmt":
        rust.format(options.check)
    elif options.tool == "doc":
        say(f"the documentation is in {rust.document(kernel.stock())}")
    elif options.tool == "unsound":
        good = True
        for line in unsound.check(kernel.stock()):
            print(line, flush=True)
            good = good and not line.startswith("not ok")
        return 0 if good else 1
    else:
        say(f"wrote {rust.analyzer(kernel.stock())}")
    return 0


COMMANDS = {"run": run, "shell": run, "build": build, "install": install, "deb": deb, "bundle": make_bundle,
            "exec": execute, "rust": rust_tools, "setup": setup, "clean": clean}
