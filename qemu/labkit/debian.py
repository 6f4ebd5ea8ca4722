# SPDX-License-Identifier: GPL-2.0
"""The Debian archive: which mirror, the trees that mmdebstrap makes from it, and single packages."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from . import suite
from .errors import LabError
from .ui import Step, say

SUITE = suite.CHOSEN.name


def mirror() -> str:
    """The mirror that this machine's own apt uses, or $FERRULE_MIRROR."""
    if own := os.environ.get("FERRULE_MIRROR"):
        return own.rstrip("/")
    targets = _output(["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL) $(COMPONENT)",
                       "Created-By: Packages"])
    for line in targets.splitlines():
        uri, label, component = (line.split(" ") + ["", ""])[:3]
        if label == "Debian" and component == "main":
            return _real_uri(uri).rstrip("/")
    raise LabError("apt knows no Debian mirror; run `apt-get update`, or set FERRULE_MIRROR to the URI of one")


def _real_uri(uri: str) -> str:
    """Cloud images name a file that holds the mirror's URI."""
    if not uri.startswith("mirror+file:"):
        return uri
    path = Path(uri.removeprefix("mirror+file:").rstrip("/"))
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            return line.split()[0]
    raise LabError(f"{path} names no mirror; set FERRULE_MIRROR to the URI of one")


def sources(release: str = SUITE) -> list[str]:
    """The lines of sources.list for the trees and for single packages; of a release that is not the lab's suite, its own
    packages alone."""
    uri = mirror()
    pockets = suite.CHOSEN.pockets if release == SUITE else [release]
    return [*(f"deb {uri} {pocket} main" for pocket in pockets), f"deb-src {uri} {pockets[0]} main"]


def apt_options() -> list[str]:
    """Lines of apt.conf: the proxy of this machine's apt, where it has one, and what the suite needs."""
    dump = _output(["apt-config", "dump"])
    # The indexes of a suite that is not released are valid for a week, and mirrors of one moment are older. Those of
    # a released one have no end.
    ends = [] if suite.CHOSEN.backports else ['Acquire::Check-Valid-Until "false";']
    return [*re.findall(r'^Acquire::https?::Proxy "[^"]+";', dump, re.MULTILINE | re.IGNORECASE), *ends]


def _output(argv: list[str]) -> str:
    if not shutil.which(argv[0]):
        raise LabError(f"{argv[0]} is missing: the lab needs a Debian system, or FERRULE_MIRROR and mmdebstrap")
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


# Programs that this machine runs itself, and the packages that have them: a minimal container lacks even mount and xz.
TOOLS = {"mmdebstrap": "mmdebstrap", "mount": "mount", "xz": "xz-utils"}


def need_tools(install: bool = False) -> None:
    """See that the tools which this machine runs itself are there; root may have them installed (`install`, or CI=true)."""
    tools = TOOLS if os.geteuid() == 0 else TOOLS | {"newuidmap": "uidmap"}

    def lacking() -> list[str]:
        return [package for tool, package in tools.items() if not shutil.which(tool)]

    missing = lacking()
    if missing and os.geteuid() == 0 and (install or os.environ.get("CI") == "true"):
        say(f"installing {' '.join(missing)}")
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=False,
                       stdout=subprocess.DEVNULL, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
        missing = lacking()
    if missing:
        sudo = "" if os.geteuid() == 0 else "sudo "
        raise LabError(f"{' and '.join(missing)} missing; install with: "
                       f"{sudo}apt-get install --no-install-recommends {' '.join(missing)}")
    if os.geteuid() != 0:
        _need_subuids()


def _need_subuids() -> None:
    import pwd

    user = pwd.getpwuid(os.geteuid())
    for file in ("/etc/subuid", "/etc/subgid"):
        try:
            owners = [line.split(":")[0] for line in Path(file).read_text().splitlines()]
        except OSError:
            owners = []
        if user.pw_name not in owners and str(user.pw_uid) not in owners:
            raise LabError(f"{file} gives {user.pw_name} no range; grant one with: "
                           f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user.pw_name}")


def bootstrap(target: Path, packages: list[str], step: Step, hooks: list[str] = (), before: list[str] = (),
              release: str = SUITE, architectures: tuple[str, ...] = (), scripts: bool = True) -> None:
    """Make a tree of these packages at `target`: a tar archive where it ends in .tar, else a directory. The hooks run
    when all packages are there, those of `before` when only the essential ones are.

    Packages are of this machine's architecture, or of `architectures`, whose first is the tree's own. Without `scripts`,
    they are unpacked and no program of theirs runs, as those of another architecture cannot.

    The files of a directory all belong to the caller, whose user namespaces can then use them as root's without
    a range of user ids, and who can remove them like any other files.
    """
    need_tools()
    options = ['APT::Install-Recommends "false";', *apt_options()]
    argv = ["mmdebstrap", f"--variant={'apt' if scripts else 'extract'}", *(f"--include={name}" for name in packages), "--format=tar",
            *([f"--architectures={','.join(architectures)}"] if architectures else []),
            *(f"--aptopt={option}" for option in options), *(f"--essential-hook={hook}" for hook in before),
            *(f"--{'customize' if scripts else 'extract'}-hook={hook}" for hook in hooks),
            suite.CHOSEN.base if release == SUITE and suite.CHOSEN.base else release, "-", *sources(release)]
    # mmdebstrap's working directory has to be reachable by the user ids that it maps, which a home is not.
    environment = os.environ | {"TMPDIR": os.environ.get("TMPDIR", "/var/tmp")}
    step.note("+ " + " ".join(argv))
    unpack = None
    with step.log.open("ab") as log:
        make = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment)
        try:
            if target.suffix == ".tar":
                with target.open("wb") as out:
                    shutil.copyfileobj(make.stdout, out, 1 << 20)
            else:
                target.mkdir()
                unpack = subprocess.run(["tar", "-x", "-C", target, "--no-same-owner", "--exclude=./dev/*"],
                                        stdin=make.stdout, stdout=log, stderr=log)
            make.stdout.close()
            status = make.wait()
        finally:
            if make.poll() is None:
                make.terminate()
                make.wait()
    if unpack and unpack.returncode != 0:
        raise step.failed(f"tar ended with status {unpack.returncode}")
    if status != 0:
        raise step.failed(f"mmdebstrap ended with status {status}")
