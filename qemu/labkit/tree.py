# SPDX-License-Identifier: GPL-2.0
"""The build tree: Debian with every compiler and QEMU, and the one way to run a program inside it."""

import functools
import os
import re
import subprocess
from pathlib import Path

from . import cache, debian, frozen, suite
from .arch import AMD64, Arch
from .errors import BUILD_FAILED, LabError
from .ui import Step

PACKAGES = f"""
    bc binutils bindgen bison busybox-static ca-certificates cargo clang cmake cpio cython3 dpkg-dev erofs-utils flex
    gcc {suite.CHOSEN.compiler} git kmod libc6-dev libclang-dev libdw-dev libelf-dev libibverbs-dev libnl-3-dev libnl-route-3-dev
    librdmacm-dev libssl-dev libudev-dev lld llvm make ninja-build pahole perl pkgconf python3 python3-dev
    qemu-system-x86 rust-clippy rust-src rustc rustfmt xz-utils zstd
""".split()

# Programs that make Debian packages, judge them, and make disks to try them on. They are a tree of their own, so that
# the one above stays the same, on which every kernel and module depends; libibverbs1 tells dh_shlibdeps its version,
# and libarchive lets mke2fs read archives.
PACKAGING = "debhelper dh-dkms dpkg-dev e2fsprogs libarchive13t64 libibverbs1 lintian".split()

# Another architecture's compilers and QEMU, what they and a kernel's build need here, and the libraries of that architecture
# that the provider and the tests' programs are linked with. They are a tree of their own for the same reason.
CROSS = """
    bc bindgen bison cmake cpio erofs-utils flex gcc gcc-14 kmod libc6-dev libclang-dev libdw-dev libelf-dev libssl-dev lld
    llvm make ninja-build pahole perl pkgconf python3 rust-src rustc rustfmt xz-utils zstd
""".split()
CROSS_FOR = {"arm64": """
    binutils-aarch64-linux-gnu g++-14-aarch64-linux-gnu gcc-14-aarch64-linux-gnu libc6-dev:arm64 libibverbs-dev:arm64
    libnl-3-dev:arm64 libnl-route-3-dev:arm64 librdmacm-dev:arm64 libudev-dev:arm64 qemu-system-arm
""".split()}

CHECKOUT = Path(__file__).resolve().parents[2]

# Runs in a mount namespace of its own: $1 is the tree; then pairs of a path here and its path in the tree, an empty
# word, and the command. The tree's own /dev, /proc and /tmp are empty directories.
ENTER = """
set -e
tree=$1; shift
mount -t proc proc "$tree/proc" 2>/dev/null || mount --rbind /proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/tmp"
while [ -n "$1" ]; do
    if [ -d "$1" ]; then mkdir -p "$tree$2"; else mkdir -p "$tree${2%/*}"; [ -e "$tree$2" ] || : > "$tree$2"; fi
    mount --rbind "$1" "$tree$2"
    shift 2
done
shift
exec chroot "$tree" "$@"
"""


def path() -> Path:
    """The build tree's directory, made first where it is not there yet (about 1 minute)."""

    def build(directory: Path, step: Step) -> None:
        debian.bootstrap(directory / "root", PACKAGES, step)

    inputs = {"suite": debian.SUITE, "packages": PACKAGES, "layout": 1}
    return cache.entry("tree", inputs, "making the build tree (about 1 minute, 2 GB)", build) / "root"


def packaging() -> Path:
    """The directory of the tree that makes Debian packages, made first where it is not there yet."""

    def build(directory: Path, step: Step) -> None:
        debian.bootstrap(directory / "root", PACKAGING, step)

    inputs = {"suite": debian.SUITE, "packages": PACKAGING, "layout": 1}
    return cache.entry("packaging", inputs, "making the tree for packages (about 1 minute, 0.5 GB)", build) / "root"


def tools(target: Arch) -> Path:
    """The directory of the tree that compiles for an architecture and has its QEMU, made first where it is not there yet."""
    if not target.crossed:
        return path()
    names = CROSS + CROSS_FOR[target.name]

    def build(directory: Path, step: Step) -> None:
        debian.bootstrap(directory / "root", names, step, architectures=(AMD64.name, target.name))

    inputs = {"suite": debian.SUITE, "packages": names, "layout": 1}
    return cache.entry("cross", inputs, f"making the tree that compiles for {target.name} (about 2 minutes, 2 GB)", build) / "root"


@functools.cache
def _namespaces() -> tuple[str, ...]:
    """The words that enter the namespaces: root needs only a mount namespace, others a user namespace as well."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *user, "--mount", "--pid", "--fork", "--kill-child")
    probe = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if probe.returncode == 0:
        return words
    why = probe.stderr.strip().splitlines()[-1:] or ["no reason given"]
    if os.geteuid() == 0:
        raise LabError(f"this container may not mount ({why[0]}); give it CAP_SYS_ADMIN (docker run --privileged)")
    raise LabError(f"unprivileged user namespaces are forbidden here ({why[0]}); allow them with: "
                   "sudo sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 "
                   "user.max_user_namespaces=10000, or run the lab as root")


def command(argv: list, binds: list[tuple] = (), cwd: Path | str = "/", root: Path | None = None) -> list[str]:
    """The words that run `argv` as root in the build tree, or in the tree `root`, with each (here, there) of `binds`
    visible there.

    The checkout and the cache's cargo directory are always there, under their own path and /cargo.
    In a bundle, it is a program of QEMU's tree, and `there` is below its working directory; so paths in `argv` have no
    slash at their beginning, which is the same in a tree, at whose root `cwd` is.
    """
    if frozen.here():
        return frozen.command(argv, binds, cache.root() / "tmp")
    cargo = cache.work("cargo")
    pairs = [(CHECKOUT, CHECKOUT), (cargo, "/cargo"), *binds]
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(file):
            pairs.append((os.path.realpath(file), file))
    flat = [str(word) for pair in pairs for word in pair]
    return [*_namespaces(), "sh", "-c", ENTER, "enter", str(root or path()), *flat, "",
            "/usr/bin/env", f"--chdir={cwd}", *map(str, argv)]


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a program in the build tree."""
    kept = {name: os.environ[name] for name in os.environ
            if name in ("TERM", "COLUMNS", "LINES") or name.lower().endswith("_proxy")}
    return kept | {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "CARGO_HOME": "/cargo",
        "CARGO_TARGET_DIR": f"/cargo/{suite.CHOSEN.directory('target')}-{cache.digest(str(CHECKOUT))}",
        "CARGO_HTTP_CAINFO": "/etc/ssl/certs/ca-certificates.crt",
    } | (extra or {})


def run(step: Step, argv: list, binds: list[tuple] = (), cwd: Path | str = "/",
        env: dict[str, str] | None = None, root: Path | None = None) -> None:
    """Run a program in the build tree, or in the tree `root`, as part of a step.

    Raises LabError when it fails.
    """
    step.note("+ " + " ".join(map(str, argv)))
    with step.log.open("ab") as out:
        done = subprocess.run(command(argv, binds, cwd, root), stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, env=environment(env))
    if done.returncode != 0:
        raise step.failed(f"{Path(str(argv[0])).name} ended with status {done.returncode}")


# Signs of a build that has failed although its commands succeed: a word of a compiler, of objtool or of modpost.
_WARNING = re.compile(r"\bwarning(\[\w+\])?: |objtool: |WARNING: modpost", re.IGNORECASE)
_NOISE = re.compile(r"make(\[\d+\])?: (Entering|Leaving) directory|  [A-Z_]+( \[M\]| [A-Z]+)? +\S+$|\[\d+/\d+\] |\+ ")
MAX_DIAGNOSTICS = 200


def compile(step: Step, argv: list, binds: list[tuple] = (), cwd: Path | str = "/", root: Path | None = None) -> None:
    """Run a build of the checkout's code in the build tree, or in the tree `root`, as part of a step; every warning is an
    error.

    Raises LabError, with the compilers' messages in full, when it fails.
    """
    start = step.log.stat().st_size
    step.note("+ " + " ".join(map(str, argv)))
    with step.log.open("ab") as out:
        done = subprocess.run(command(argv, binds, cwd, root), stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, env=environment())
    with step.log.open(errors="replace") as log:
        log.seek(start)
        lines = [line.rstrip("\n") for line in log]
    if done.returncode == 0 and not any(_WARNING.search(line) for line in lines):
        return
    telling = [line for line in lines if not _NOISE.match(line)]
    shown = "\n".join(telling[:MAX_DIAGNOSTICS])
    if len(telling) > MAX_DIAGNOSTICS:
        shown += f"\n… and {len(telling) - MAX_DIAGNOSTICS} more lines"
    why = "a warning" if done.returncode == 0 else f"{Path(str(argv[0])).name} ended with status {done.returncode}"
    raise LabError(f"{step.title}: {why}; the whole log is {step.log}\n{shown}", BUILD_FAILED)


def output(argv: list, binds: list[tuple] = (), root: Path | None = None) -> str:
    """The output of a short program in the build tree, or in the tree `root`.

    Raises LabError when it fails.
    """
    done = subprocess.run(command(argv, binds, root=root), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=environment(), text=True)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise LabError(f"{argv[0]} in the build tree: {last[0]}")
    return done.stdout


def jobs() -> int:
    """How many jobs a build may run at once."""
    return len(os.sched_getaffinity(0))
