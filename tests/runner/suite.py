# SPDX-License-Identifier: GPL-2.0
"""What a suite is: one file in tests/suites/, its name that of the file."""

import fnmatch
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[1] / "suites"
KNOWN = DIRECTORY.parent / "known.toml"
KERNELS = ("stock", "debug")
BACKENDS = ("soft", "nic")
FORMATS = ("tap", "unittest", "cargo", "exit")

# How much slower the debug kernel is: time limits are so many times as long.
SLOW = {"stock": 1, "debug": 6}

# How many guests run at a time. Most suites keep one processor busy; where time limits are short, the other stays free.
JOBS = {"stock": 1, "debug": 2}


class SuiteError(Exception):
    """A suite's file is wrong; the message is for a person."""


@dataclass(frozen=True)
class Suite:
    """One suite, as its file says."""

    name: str
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
    lab: tuple[str, ...]
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
            return _pick(self.timeout, kernel, long)
        return self.timeout * SLOW.get(kernel, 1)

    @property
    def backend(self) -> str:
        """The backend of its guests: the first, unless another was asked for."""
        return self.backends[0]

    def command_line(self, kernel: str, long: bool, driver: str) -> str:
        """The shell command, with {type}, {device} and {rounds} filled in."""
        rounds = _pick(self.rounds, kernel, long) if isinstance(self.rounds, dict) else self.rounds
        return self.command.format(type=driver, device=f"{driver}0", rounds=rounds)


def _pick(table: dict, kernel: str, long: bool):
    """What is for a kernel: in long runs by preference `long`, and for the slow one `long_debug` before that."""
    keys = ([f"long_{kernel}", "long"] if long else []) + [kernel, "stock"]
    return next(table[key] for key in keys if key in table)


# What may have rounds and a time limit of its own.
_SITUATIONS = {*KERNELS, "long", "long_debug"}

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
    "lab": (list, []),
    "reports": (list, []),
    "known": (list, []),
}


def read(path: Path) -> Suite:
    """A suite from its file."""

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
    if not value["only_long"].keys() <= set(KERNELS):
        raise wrong(f"only_long has reasons by kernel: {', '.join(KERNELS)}")
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
    return Suite(name=path.stem, about=value["about"], where=value["where"], command=value["command"].strip(),
                 format=value["format"], timeout=value["timeout"], rounds=value["rounds"],
                 kernels=tuple(value["kernels"]), backends=tuple(value["backends"]), only_long=value["only_long"],
                 leaks_only_long=value["leaks_only_long"], device=value["device"],
                 boot=value["boot"], lab=tuple(value["lab"]), reports=tuple(value["reports"]),
                 known={function: reasons[function] for function in value["known"]})


def read_all(directory: Path = DIRECTORY) -> list[Suite]:
    """All suites: the host's first, since they are quick to tell a mistake, then by name."""
    suites = [read(path) for path in sorted(directory.glob("*.toml"))]
    return sorted(suites, key=lambda suite: (not suite.on_host, suite.own_boot, suite.name))


def left_out(suites: list[Suite], patterns: list[str], kernel: str, long: bool) -> list[Suite]:
    """The suites that run on this kernel only in long runs, or when they are named."""
    return [] if patterns or long else [suite for suite in suites if kernel in suite.only_long]


def choose(suites: list[Suite], patterns: list[str], kernel: str, long: bool = False,
           backend: str | None = None) -> list[Suite]:
    """The suites that the patterns name (all, without any), of this kernel; the host's belong to stock. With a backend,
    those of guests that run on it, or are named. What looks after each boot comes along unasked."""
    out = left_out(suites, patterns, kernel, long)
    chosen = []
    for pattern in patterns:
        if not any(fnmatch.fnmatch(suite.name, pattern) for suite in suites):
            raise SuiteError(f"no suite is named {pattern}; --list shows them")
    for suite in suites:
        if suite in out or patterns and not any(fnmatch.fnmatch(suite.name, pattern) for pattern in patterns):
            continue
        if backend and not patterns and (suite.on_host or backend not in suite.backends):
            continue
        if kernel in suite.kernels if not suite.on_host else kernel == "stock" or patterns:
            chosen.append(suite)
    if backend:
        chosen = [suite if suite.on_host else replace(suite, backends=(backend,)) for suite in chosen]
    if any(not suite.on_host and not suite.in_each_boot for suite in chosen):
        chosen += [suite for suite in suites if suite.in_each_boot and kernel in suite.kernels
                   and suite.name not in {one.name for one in chosen}]
    return chosen
