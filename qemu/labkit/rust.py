# SPDX-License-Identifier: GPL-2.0
"""The tools around Rust code: rustfmt, rustdoc and rust-analyzer.

kbuild knows each crate of a module as a file to compile and no more; how the crates hang together stands in the commands
with which it compiled them, and there rustdoc and rust-analyzer get it from.
"""

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import cache, kernel, module, programs, tree
from .errors import LabError
from .ui import Step

# Programs of the host's: no part of a module.
PROGRAMS = ["qemu/nic", "tests/bench/plot"]

ENVIRONMENT = {"RUSTC_BOOTSTRAP": "1", "OBJTREE": kernel.KDIR}


@dataclass
class Crate:
    """One crate of the module, as kbuild compiled it."""

    name: str
    root: Path
    words: list[str]

    @property
    def externs(self) -> list[str]:
        pairs = zip(self.words, self.words[1:])
        return [value.split("=")[0] for option, value in pairs if option == "--extern"]

    @property
    def environment(self) -> dict[str, str]:
        pairs = zip(self.words, self.words[1:])
        return dict(value.split("=", 1) for option, value in pairs if option == "--env-set")


def crates(work: Path) -> list[Crate]:
    """The crates that kbuild compiled in a directory, those that others use first.

    What it compiled stays there when a source moves, and is no crate any more.
    """
    found = {}
    for file in work.rglob(".*.o.cmd"):
        first = file.read_text().split("\n", 1)[0]
        match = re.match(r"savedcmd_(\S+) := (.*)", first)
        words = shlex.split(match[2].split(";")[0]) if match else []
        roots = [word for word in words if word.endswith(".rs")]
        if roots and (work / roots[-1]).exists():
            name = words[words.index("--crate-name") + 1] if "--crate-name" in words else Path(match[1]).stem
            found[name] = Crate(name, Path(roots[-1]), words)
    order: list[Crate] = []

    def visit(crate: Crate) -> None:
        if crate not in order:
            for name in crate.externs:
                if name in found:
                    visit(found[name])
            order.append(crate)

    for name in sorted(found):
        visit(found[name])
    return order


def rust_files() -> list[Path]:
    """All Rust code of the checkout, relative to it."""
    others = (path.relative_to(tree.CHECKOUT) for top in PROGRAMS for path in (tree.CHECKOUT / top).rglob("*.rs"))
    return [*(file for file in module.sources() if file.suffix == ".rs"),
            *(file for file in sorted(others) if "target" not in file.parts)]


def format(check: bool) -> None:
    """Format all Rust code of the checkout as the kernel's is; `check` only looks.

    Raises LabError, with what would change, where something would.
    """
    files = rust_files()
    target = kernel.stock()
    with Step("checking the format" if check else "formatting", cache.log_file("rustfmt")) as step:
        if files:
            tree.compile(step, ["rustfmt", "--color=never", "--config-path", "/kernel/src/.rustfmt.toml", *(["--check"] if check else []),
                                *files], [(target.source, kernel.SOURCE)], tree.CHECKOUT)


def document(target: kernel.Kernel) -> Path:
    """Make the documentation of rust/'s crates; returns its directory. A warning of rustdoc's is an error."""
    module.build(target)
    name = module.work_name(module.flavour(target))
    out = programs.BUILD / "rustdoc"
    with cache.lock(name), Step("documenting rust/", cache.log_file("rustdoc")) as step:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        work = cache.work(name)
        binds = [*target.binds, (work, tree.CHECKOUT), (out, "/rustdoc")]
        for crate in crates(work):
            # The bindings are what bindgen made of C headers: half a minute of work that nobody reads.
            if crate.root.parts[0] != "rust" or crate.root.parts[1] == "bindings":
                continue
            settings = [f"{key}={value}" for key, value in (ENVIRONMENT | crate.environment).items()]
            tree.compile(step, ["env", *settings, "rustdoc", *_for_rustdoc(crate), "--output=/rustdoc"], binds,
                         tree.CHECKOUT)
    return out


def _for_rustdoc(crate: Crate) -> list[str]:
    """A crate's command for the compiler, less what rustdoc does not take."""
    kept = []
    words = iter(crate.words[next(i for i, word in enumerate(crate.words) if word.startswith("--edition")):])
    for word in words:
        if word in ("--out-dir", "--crate-name", "--env-set"):
            next(words)
        elif not word.startswith(("--emit", "-Zbinary_dep_depinfo", "-Wunreachable_pub", "--remap-path-prefix")):
            kept.append(word)
    return ["--crate-name", crate.name, *kept]


def analyzer(target: kernel.Kernel) -> Path:
    """Write rust-project.json into the checkout; its paths are those of this machine, outside the build tree."""
    module.build(target)
    name = module.work_name(module.flavour(target))
    with cache.lock(name), Step("describing the crates for rust-analyzer", cache.log_file("rust-analyzer")) as step:
        work = cache.work(name)
        tree.run(step, [*module.make_words(target), "rust-analyzer"], [*target.binds, (work, tree.CHECKOUT)])
        project = json.loads((work / "rust-project.json").read_text())
        add_crates(project, crates(work), work)
        text = json.dumps(project, indent=2)
        for inside, outside in ((kernel.SOURCE, target.source), (kernel.KDIR, target.kdir), ("/usr", tree.path() / "usr")):
            text = re.sub(rf'"{inside}(?=[/"])', f'"{outside}', text)
        path = tree.CHECKOUT / "rust-project.json"
        path.write_text(text + "\n")
    return path


def add_crates(project: dict, found: list[Crate], work: Path) -> None:
    """Put the module's crates into a project in the place of what the kernel's script made of them."""
    known = project["crates"]
    ours = {str(tree.CHECKOUT / crate.root) for crate in found}
    dropped = [number for number, crate in enumerate(known) if crate["root_module"] in ours]
    if dropped and dropped != list(range(dropped[0], len(known))):
        raise LabError("the kernel's rust-project.json has crates of its own behind the module's")
    del known[dropped[0] if dropped else len(known):]
    numbers = {crate["display_name"]: number for number, crate in enumerate(known)}
    pattern = next(crate for crate in known if crate["display_name"] == "kernel")
    for crate in found:
        names = ["core", *crate.externs]
        known.append({
            "display_name": crate.name,
            "root_module": str(tree.CHECKOUT / crate.root),
            "is_workspace_member": True,
            "is_proc_macro": False,
            "edition": "2021",
            "deps": [{"crate": numbers[name], "name": name} for name in names if name in numbers],
            "cfg": [*pattern["cfg"], "MODULE"],
            "env": pattern["env"] | {key: value.replace(str(tree.CHECKOUT), str(work))
                                     for key, value in crate.environment.items()},
        })
        numbers[crate.name] = len(known) - 1
