# SPDX-License-Identifier: GPL-2.0
"""A suite is one file in tests/suites/, its name that of the file; on each further backend a suite of its own."""

import fnmatch
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[1] / "suites"
KNOWN = DIRECTORY.parent / "known.toml"
KERNELS = ("stock", "debug")
BACKENDS = ("soft", "nic")
FORMATS = ("tap", "unittest", "cargo", "exit")

# Runs on Debian's kernel for other architectures, with the lab's words: on one, and between two nodes of both.
CROSSED = {
    "arm64": ("--arch", "arm64"),
    "arm64-amd64": ("--arch", "arm64", "--peer-arch", "amd64"),
    "amd64-arm64": ("--arch", "amd64", "--peer-arch", "arm64"),
}

# The kernels that a run may be on, each with the one whose words in a suite's file hold for it: rt is Debian's kernel with
# PREEMPT_RT, rt-debug is the debug kernel with it, and kcsan is one with KCSAN. These, and those of CROSSED, are for runs
# that name them.
LIKE = {"stock": "stock", "debug": "debug", "rt": "stock", "rt-debug": "debug", "kcsan": "stock",
        **dict.fromkeys(CROSSED, "stock")}

# How much slower a debug kernel is, and an emulated processor: time limits are so many times as long.
SLOW = {"stock": 1, "debug": 6, "rt": 1, "rt-debug": 6, "kcsan": 6, **dict.fromkeys(CROSSED, 2)}

# How many suites of this machine and guests run at a time. Most keep one processor busy.
JOBS = 2


def known_on(kernel: str) -> dict[str, str]:
    """The functions that this kernel reports by itself, and why that is no fault of ours."""
    return tomllib.loads(KNOWN.read_text()).get(kernel, {})


class SuiteError(Exception):
    """A suite's file is wrong; the message is for a person."""


@dataclass(frozen=True)
class Suite:
    """One suite on one backend, as its file says."""

    name: str
    backend: str            # of its guests
    about: str
    where: str
    command: str
    format: str
    timeout: object
    rounds: object
    kernels: tuple[str, ...]
    backends: tuple[str, ...]
    only_long: dict
    leaks_only_long: str
    device: str
    boot: str
    alone: str              # why nothing else may run at the time
    options: tuple[str, ...] | dict[str, list[str]]
    reports: tuple[str, ...]
    known: dict[str, str]   # with the reasons

    @property
    def on_host(self) -> bool:
        return self.where == "host"

    @property
    def own_boot(self) -> bool:
        # Where reports are expected, no other suite's may be among them.
        return self.boot == "own" or bool(self.reports)

    @property
    def in_each_boot(self) -> bool:
        return self.boot == "each"

    def watches_leaks(self, long: bool) -> bool:
        """Whether its boot keeps an account of memory, on a kernel that can."""
        return long or not self.leaks_only_long

    def seconds(self, kernel: str, long: bool) -> int:
        """The time limit; one that is given for every case alike grows with the kernel's slowness."""
        if isinstance(self.timeout, dict):
            return self._pick(self.timeout, kernel, long) * SLOW[kernel] // SLOW[LIKE[kernel]]
        return self.timeout * SLOW.get(kernel, 1)

    @property
    def file(self) -> str:
        """The name of its file."""
        return self.name.partition(".")[0]

    def on(self, backend: str) -> "Suite":
        """The same on a backend. On the first one of its file it has the file's name; on others the backend's behind that."""
        return replace(self, backend=backend, name=self.file + (f".{backend}" if backend != self.backends[0] else ""))

    @property
    def lab(self) -> tuple[str, ...]:
        """More options for the lab."""
        return tuple(self.options.get(self.backend, ()) if isinstance(self.options, dict) else self.options)

    def is_named(self, pattern: str) -> bool:
        """Whether a pattern names it, or its file and so each backend of that."""
        return fnmatch.fnmatch(self.name, pattern) or fnmatch.fnmatch(self.file, pattern)

    def is_for(self, kernel: str) -> bool:
        """Whether it runs in guests with this kernel. On another architecture only soft does, and between two those with two
        nodes."""
        if kernel in CROSSED and (self.backend != "soft" or "--peer-arch" in CROSSED[kernel] and "--nodes" not in self.lab):
            return False
        # A clock by instructions would show how long KCSAN waits, and little else.
        if kernel == "kcsan" and "icount" in self.lab:
            return False
        return kernel in self.kernels or LIKE[kernel] in self.kernels

    def why_only_long(self, kernel: str) -> str:
        """Why it runs on a kernel in long runs alone, if so. A run between two architectures has no others."""
        if "--peer-arch" in CROSSED.get(kernel, ()):
            return ""
        kernel = LIKE[kernel]
        keys = (f"{self.backend}_{kernel}", self.backend, kernel)
        return next((self.only_long[key] for key in keys if key in self.only_long), "")

    def command_line(self, kernel: str, long: bool, driver: str) -> str:
        """The shell command, with {type}, {device} and {rounds} filled in."""
        rounds = self._pick(self.rounds, kernel, long) if isinstance(self.rounds, dict) else self.rounds
        return self.command.format(type=driver, device=f"{driver}0", rounds=rounds)

    def _pick(self, table: dict, kernel: str, long: bool):
        """The value for a kernel: in long runs by preference `long`, and for the slow one `long_debug` before that; in others
        that of the backend."""
        kernel = LIKE[kernel]
        keys = ([f"long_{kernel}", "long"] if long else [self.backend]) + [kernel, "stock"]
        return next(table[key] for key in keys if key in table)


# Situations that may have rounds and a time limit of their own.
_SITUATIONS = {*KERNELS, *BACKENDS, "long", "long_debug"}

# Keys of `only_long`: a kernel, a backend, or one on the other.
_RUNS = {*KERNELS, *BACKENDS, *(f"{backend}_{kernel}" for backend in BACKENDS for kernel in KERNELS)}

# Each key with its type and its default; None: it has to be there.
_KEYS = {
    "about": (str, None),
    "where": (str, None),
    "command": (str, None),
    "timeout": ((int, dict), None),
    "format": (str, "tap"),
    "rounds": ((int, dict), 0),
    "kernels": (list, list(KERNELS)),
    "backends": (list, ["soft"]),
    "only_long": (dict, {}),
    "leaks_only_long": (str, ""),
    "device": (str, "ferrule"),
    "boot": (str, "shared"),
    "alone": (str, ""),
    "lab": ((list, dict), []),
    "reports": (list, []),
    "known": (list, []),
}


def read(path: Path) -> Suite:
    """A suite from its file, on the first of its backends."""

    def wrong(what: str) -> SuiteError:
        return SuiteError(f"{path}: {what}")

    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise wrong(str(error)) from None
    for key in content:
        if key not in _KEYS:
            raise wrong(f"no such key: {key}")
    value = {}
    for key, (kind, default) in _KEYS.items():
        value[key] = content.get(key, default)
        if value[key] is None:
            raise wrong(f"{key} is missing")
        if not isinstance(value[key], kind):
            raise wrong(f"{key} has the wrong type")
    for key, allowed in (("where", ("host", "guest")), ("format", FORMATS), ("boot", ("shared", "own", "each")),
                         ("device", ("ferrule", "none"))):
        if value[key] not in allowed:
            raise wrong(f"{key} is one of {', '.join(allowed)}")
    if not value["backends"] or not set(value["backends"]) <= set(BACKENDS):
        raise wrong(f"backends are some of {', '.join(BACKENDS)}")
    if not value["only_long"].keys() <= _RUNS:
        raise wrong(f"only_long has reasons for {', '.join(sorted(_RUNS))}")
    if isinstance(value["lab"], dict) and not value["lab"].keys() <= set(value["backends"]):
        raise wrong("lab has options for backends that it does not run on")
    if value["leaks_only_long"] and value["boot"] != "own":
        raise wrong("leaks_only_long is for suites with a boot of their own")
    for key in ("timeout", "rounds"):
        if isinstance(value[key], dict):
            if "stock" not in value[key]:
                raise wrong(f"{key} needs a value for stock")
            if not value[key].keys() <= _SITUATIONS:
                raise wrong(f"{key} has values for {', '.join(sorted(_SITUATIONS))}")
    reasons = tomllib.loads(KNOWN.read_text())
    for function in value["known"]:
        if function not in reasons:
            raise wrong(f"{KNOWN.name} does not tell why {function} is known")
    return Suite(name=path.stem, backend=value["backends"][0], about=value["about"], where=value["where"], command=value["command"].strip(),
                 format=value["format"], timeout=value["timeout"], rounds=value["rounds"],
                 kernels=tuple(value["kernels"]), backends=tuple(value["backends"]), only_long=value["only_long"],
                 leaks_only_long=value["leaks_only_long"], device=value["device"],
                 boot=value["boot"], alone=value["alone"],
                 options=value["lab"] if isinstance(value["lab"], dict) else tuple(value["lab"]), reports=tuple(value["reports"]),
                 known={function: reasons[function] for function in value["known"]})


def read_all(directory: Path = DIRECTORY) -> list[Suite]:
    """All suites: the host's first, since they are quick to tell a mistake, then by name."""
    suites = [one.on(backend) for one in map(read, sorted(directory.glob("*.toml"))) for backend in one.backends]
    return sorted(suites, key=lambda suite: (not suite.on_host, suite.own_boot, suite.name))


def left_out(suites: list[Suite], patterns: list[str], kernel: str, long: bool, backend: str | None = None) -> list[Suite]:
    """The suites that run on this kernel only in long runs, or when they are named."""
    if patterns or long:
        return []
    return [suite for suite in suites if suite.why_only_long(kernel) and backend in (None, suite.backend)
            and (kernel not in CROSSED or not suite.on_host and suite.is_for(kernel))]


def choose(suites: list[Suite], patterns: list[str], kernel: str, long: bool = False,
           backend: str | None = None) -> list[Suite]:
    """The suites that the patterns name (all, without any), of this kernel; the host's belong to stock. With a backend,
    those of guests that run on it, and suites that are named run on it even if their file does not say so. Suites that
    look after each boot come along unasked."""
    out = left_out(suites, patterns, kernel, long)
    chosen = []
    for pattern in patterns:
        if not any(suite.is_named(pattern) for suite in suites):
            raise SuiteError(f"no suite is named {pattern}; --list shows them")
    for suite in suites:
        if suite in out or patterns and not any(suite.is_named(pattern) for pattern in patterns):
            continue
        if backend and not patterns and suite.on_host:
            continue
        if backend and not suite.on_host and suite.backend != backend:
            if not patterns or backend in suite.backends:
                continue
            suite = suite.on(backend)
        if suite.is_for(kernel) if not suite.on_host else kernel == "stock" or patterns:
            chosen.append(suite)
    if any(not suite.on_host and not suite.in_each_boot for suite in chosen):
        chosen += [suite for suite in suites if suite.in_each_boot and suite.is_for(kernel)
                   and suite.file not in {one.file for one in chosen}]
    return chosen
