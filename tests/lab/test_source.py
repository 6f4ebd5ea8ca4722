# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the source: files import each other in one direction, none is long, comments name their subject, and
space is called by the name that it has where it is (write space, capacity, a reservation)."""

import re
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DRIVER = CHECKOUT / "drivers/infiniband/sw/ferrule"

# Each is a tree of modules: a crate, whose root is lib.rs, or a part of one.
TREES = (DRIVER / "backend", DRIVER / "nic", DRIVER / "soft", DRIVER / "verbs", CHECKOUT / "rust/kernel", CHECKOUT / "rust/kernel/net",
         CHECKOUT / "rust/kernel/infiniband", CHECKOUT / "qemu/nic/src")

# Modules that all others of a tree may import: a driver names each kind of object, and each kind names its driver.
MUTUAL = {CHECKOUT / "rust/kernel/infiniband": ("driver",), DRIVER / "verbs": ()}

# The layers of the driver, and the others that each may name.
# The PCI driver makes its devices itself, where those of `rdma link` are made by the verbs.
LAYERS = {"nic": {"backend", "verbs"}, "verbs": {"backend"}, "soft": {"backend", "trace"}, "backend": set(),
          "trace": set()}

LINES = 500
ENGINE = DRIVER / "engine"
MEASURED = (DRIVER / "backend", DRIVER / "nic", DRIVER / "soft", DRIVER / "verbs", DRIVER / "trace", ENGINE / "src", ENGINE / "tests", ENGINE / "benches",
            ENGINE / "fuzz/targets", CHECKOUT / "rust", CHECKOUT / "include", CHECKOUT / "userspace-provider",
            CHECKOUT / "tests", CHECKOUT / "qemu")
ENDINGS = (".rs", ".c", ".h", ".py", ".sh")

# Longer files, each with the reason.
LONG: dict[str, str] = {
    "drivers/infiniband/sw/ferrule/nic/interface.rs": "the driver and the device compile this one file",
}

# A comment, a docstring, or a sentence inside, whose subject is a clause.
_CLAUSE = re.compile(r'(?:^\s*(?:#|\*|""")|(?://[/!]?|/\*+))\s?(?:.*[.:;] )?(?:What|Who|Which|Whose)\b')
# The same within a sentence. A name before the word is what it refers to ("a program who …").
_INNER = re.compile(r'(?:^\s*(?:#|\*|""")|(?://[/!]?|/\*+)).*(?:[:;]|\b(?:of|by|for|and|so|else|meanwhile)) who\b')

# A word that says neither of which space nor whose. The kernel has it in two names of a socket buffer.
_VAGUE = re.compile(r"(?<!head)(?<!tail)ro{2}m", re.IGNORECASE)
NAMED = tuple(CHECKOUT / name for name in ("drivers", "include", "rust", "userspace-provider", "tests", "qemu", ".ci",
                                           "README.md", "Kbuild", "Makefile"))

_COMMENT = re.compile(r"//[^\n]*")
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_PATH = re.compile(r"(?<![:\w])((?:crate|self|super)(?:::\w+)+)")
_CHILD = re.compile(r"(?<![:\w])(\w+)::\w")

Words = tuple[str, ...]


@dataclass
class Module:
    """A file: the names that it takes of others, and those that it hands on."""

    place: Words
    names: list[Words] = field(default_factory=list)
    exports: dict[str, Words] = field(default_factory=dict)


def leaves(tree: str, before: Words = ()) -> Iterator[tuple[Words, str]]:
    """The paths of a `use` without its braces, each with the name that it gets."""
    tree = tree.strip()
    group = re.fullmatch(r"((?:\w+::)*)\{(.*)\}", tree, re.DOTALL)
    if not group:
        path, _, name = tree.partition(" as ")
        words = (*before, *path.strip().split("::"))
        words = words[:-1] if words[-1] == "self" and len(words) > 1 else words
        yield words, name.strip() or words[-1]
        return
    before = (*before, *filter(None, group[1].split("::")))
    depth, part = 0, ""
    for letter in group[2] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter != "," or depth:
            part += letter
        else:
            if part.strip():
                yield from leaves(part, before)
            part = ""


def modules(tree: Path) -> dict[Words, Module]:
    """The files of a tree by their places in it, without crates that lie in it."""
    files = {}
    others = [root.parent for root in tree.rglob("lib.rs") if root.parent != tree]
    for file in sorted(tree.rglob("*.rs")):
        if any(other in file.parents for other in others):
            continue
        place = file.relative_to(tree).with_suffix("").parts
        files[() if place in (("lib",), ("mod",)) else place[:-1] if place[-1] == "mod" else place] = file
    crate = () if (tree / "lib.rs").exists() else (tree.name,)
    return {place: read(place, file.read_text(), set(files), crate) for place, file in files.items()}


def read(place: Words, text: str, places: set[Words], crate: Words) -> Module:
    module = Module(place)
    text = _COMMENT.sub("", text)

    def absolute(words: Words) -> Words | None:
        base = place
        if words[0] == "crate":
            return words[1 + len(crate):] if words[1:1 + len(crate)] == crate else None
        if words[0] == "self":
            return (*base, *words[1:])
        while words and words[0] == "super":
            if not base:
                return None
            base, words = base[:-1], words[1:]
            if not words or words[0] != "super":
                return (*base, *words)
        return (*base, *words) if (*base, words[0]) in places else None

    for public, tree in _USE.findall(text):
        for words, name in leaves(tree):
            path = absolute(words)
            if public and len(words) > 1:
                module.exports[name] = path or ("",)
            elif path is not None:
                module.names.append(path)
    rest = _USE.sub("", text)
    children = {at[-1] for at in places if at[:-1] == place and at}
    module.names += filter(None, (absolute(tuple(path.split("::"))) for path in _PATH.findall(rest)))
    module.names += [(*place, child) for child in _CHILD.findall(rest) if child in children]
    # A name that a file hands on and uses itself is an import as well.
    module.names += [path for name, path in module.exports.items()
                     if path != ("",) and place and re.search(rf"\b{name}\b", rest)]
    return module


def imports(tree: Path) -> dict[Words, set[Words]]:
    """The files that each file imports from, wherever the names go through."""
    found = modules(tree)

    def owner(path: Words) -> Words | None:
        seen = set()
        while path not in seen:
            seen.add(path)
            place = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in found or not length)
            if place == path or place not in found:
                return place if place in found else None
            handed = found[place].exports.get(path[len(place)])
            if handed is None:
                return place
            if handed == ("",):
                return None
            path = (*handed, *path[len(place) + 1:])
        return None

    free = {None, MUTUAL.get(tree)}
    return {place: {owner(path) for path in module.names} - {place} - free for place, module in found.items()}


def layers(text: str) -> set[str]:
    """The layers of the driver that a file names by their paths from the crate's root."""
    text = _COMMENT.sub("", text)
    paths = {path for _, tree in _USE.findall(text) for path, _ in leaves(tree)}
    paths |= {tuple(path.split("::")) for path in _PATH.findall(_USE.sub("", text))}
    return {path[1] for path in paths if path[0] == "crate"} & LAYERS.keys()


def circle(edges: dict[Words, set[Words]]) -> list[str]:
    """Files that import each other in a circle; none if there is no circle."""
    left = {place: set(targets) for place, targets in edges.items()}
    while True:
        ends = {place for place, targets in left.items() if not targets & left.keys()}
        if not ends:
            break
        left = {place: targets for place, targets in left.items() if place not in ends}
    if not left:
        return []
    way = [next(iter(sorted(left)))]
    while way[-1] not in way[:-1]:
        way.append(min(left[way[-1]] & left.keys()))
    return ["::".join(place) or "(root)" for place in way[way.index(way[-1]):]]


def is_source(file: Path) -> bool:
    """A file by its ending, or a program that has none."""
    if file.suffix or not file.is_file():
        return file.suffix in ENDINGS
    with file.open("rb") as program:
        return program.read(2) == b"#!"


def wide_comments(text):
    """The numbers of the lines in Rust with comments beyond column 100, checkpatch's limit, but for tables, links and code."""
    found, is_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r"\s*//[/!]? ?(.*)", line)
        if not comment:
            continue
        is_code ^= comment[1].startswith("```")
        if len(line) > 100 and not is_code and not comment[1].startswith(("|", "[")):
            found.append(number)
    return found


def long_files(directory: Path) -> list[Path]:
    files = (file for file in sorted(directory.rglob("*")) if is_source(file) and "generated" not in file.name)
    return [file for file in files if len(file.read_text(errors="replace").splitlines()) > LINES]


def vague(data: bytes) -> list[int]:
    """The lines of a text that have the word; data that is no text has none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return []
    return [number for number, line in enumerate(text.splitlines(), 1) if _VAGUE.search(line)]


def clauses(text: str) -> list[int]:
    """The lines where a comment leaves its subject without a name: it begins with What, Who, Which or Whose, or has such a
    clause inside."""
    return [number for number, line in enumerate(text.splitlines(), 1) if _CLAUSE.search(line) or _INNER.search(line)]


class Source(unittest.TestCase):
    def test_no_circle_of_files(self):
        for tree in TREES:
            with self.subTest(tree=str(tree.relative_to(CHECKOUT))):
                self.assertEqual(circle(imports(tree)), [])

    def test_imports_are_found(self):
        softirq = imports(DRIVER / "soft")[("softirq",)]
        self.assertLessEqual({("core",), ("host",), ("net", "device"), ("policy",)}, softirq)
        self.assertIn(("qp", "notifier"), imports(CHECKOUT / "rust/kernel/infiniband")[("wc",)])

    def test_layers(self):
        for layer, below in LAYERS.items():
            for file in sorted((DRIVER / layer).rglob("*.rs")):
                with self.subTest(file=str(file.relative_to(CHECKOUT))):
                    self.assertLessEqual(layers(file.read_text()) - {layer}, below)

    def test_no_file_is_long(self):
        for directory in MEASURED:
            self.assertTrue(directory.is_dir(), directory)
        found = {str(file.relative_to(CHECKOUT)) for directory in MEASURED for file in long_files(directory)}
        self.assertEqual(found, LONG.keys())

    def test_no_comment_is_wide(self):
        self.assertEqual(wide_comments("// " + 97 * "x" + "\n/// " + 97 * "…" + "\n"), [2])
        self.assertEqual(wide_comments("//! | " + 99 * "x" + "\n/// ```\n/// " + 99 * "x" + "\n/// ```\n    // " + 94 * "x"), [5])
        for file in sorted(file for directory in MEASURED for file in directory.rglob("*.rs") if is_source(file)):
            with self.subTest(file=str(file.relative_to(CHECKOUT))):
                self.assertEqual(wide_comments(file.read_text()), [])

    def test_comments_name_their_subject(self):
        for file in sorted(file for directory in MEASURED for file in directory.rglob("*") if is_source(file)):
            with self.subTest(file=str(file.relative_to(CHECKOUT))):
                self.assertEqual(clauses(file.read_text(errors="replace")), [])


    def test_space_has_its_name(self):
        for place in NAMED:
            files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
            self.assertTrue(files, place)
            for file in sorted(files):
                with self.subTest(file=str(file.relative_to(CHECKOUT))):
                    self.assertIsNone(_VAGUE.search(file.name))
                    self.assertEqual(vague(file.read_bytes()), [])


class Checks(unittest.TestCase):
    """The tests above at sources that are wrong."""

    def test_vague_names_are_found(self):
        word = "ro" + "om"
        for line in (f"there is {word}", f"fn has_{word}()", f"{word.upper()}: u32", f"struct {word.title()}", f"big{word}s"):
            self.assertEqual(vague(f"x\n{line}\n".encode()), [2], line)
        self.assertEqual(vague(f"head{word} tail{word} HEAD{word.upper()} from".encode()), [])
        self.assertEqual(vague(word.encode() + b"\xff"), [])

    def circle(self, **files: str) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            tree = Path(directory) / "soft"
            for name, text in files.items():
                file = tree / f"{name.replace('__', '/')}.rs"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return circle(imports(tree))

    def test_names_of_layers(self):
        self.assertEqual(layers("use crate::{backend::Backend, soft::{self, Soft}};\n// crate::trace::step\n"), {"backend", "soft"})
        self.assertEqual(layers("fn f() { crate::trace::step(self::soft::g()) }"), {"trace"})

    def test_one_direction(self):
        self.assertEqual(self.circle(lib="mod a;\nmod b;\n", a="use crate::b::X;", b="pub struct X;"), [])

    def test_two_files(self):
        self.assertEqual(self.circle(lib="mod a;\nmod b;\n", a="use super::b::X;", b="use crate::{a::Y, c};"), ["a", "b", "a"])

    def test_by_a_name_that_the_root_hands_on(self):
        lib = "mod a;\nmod b;\npub use a::{X, Z as Q};\npub(crate) use elsewhere as bindings;\n"
        self.assertEqual(self.circle(lib=lib, a="fn f() { crate::b::g() }", b="use crate::Q;"), ["a", "b", "a"])
        self.assertEqual(self.circle(lib=lib, a="use crate::bindings;", b="use crate::bindings;"), [])

    def test_by_the_parent(self):
        self.assertEqual(self.circle(mod="mod a;", a="mod b;\npub use b::X;\nfn f(x: X) {}", a__b="use super::f;"),
                         ["a", "a::b", "a"])
        self.assertEqual(self.circle(mod="mod a;", a="mod b;\npub use b::X;\nfn f() {}", a__b="use super::f;"), [])
        self.assertEqual(self.circle(mod="mod a;", a="mod b;\nfn f(x: b::X) {}", a__b="use super::f;"), ["a", "a::b", "a"])

    def test_part_of_a_crate(self):
        self.assertEqual(self.circle(mod="mod a;\nmod b;", a="use crate::soft::b;", b="use crate::soft::a;"), ["a", "b", "a"])
        self.assertEqual(self.circle(mod="mod a;\nmod b;", a="use crate::verbs::b;", b="use crate::soft::a;"), [])

    def test_comments_are_no_imports(self):
        self.assertEqual(self.circle(lib="", a="// use crate::b;\n//! [`b`](crate::b)", b="use crate::a;"), [])

    def test_long_files_are_found(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, line in (("long.py", "pass"), ("program", "#!/bin/sh"), ("page.md", "text"), ("data", "text")):
                Path(directory, name).write_text(f"{line}\n" * (LINES + 1))
            Path(directory, "short.c").write_text("\n" * LINES)
            self.assertEqual([file.name for file in long_files(Path(directory))], ["long.py", "program"])

    def test_clauses_are_found(self):
        begins = ("///", "//!", "    #", "/*", " * It is.", '"""', "x = 1; //", "# It is:")
        for begin in begins:
            for word in ("What", "Who", "Which", "Whose"):
                self.assertEqual(clauses(f"x\n{begin} {word} it is."), [2], (begin, word))
        self.assertEqual(clauses("/// Whatever comes.\nx = 1  # Whether\nprint(What)\na * Who\n"), [])
        for inside in ("it wakes up, and who sleeps goes on", "the doorbells of who rings", "not 0: who rings must kick"):
            self.assertEqual(clauses(f"x\n/// {inside}\nx; /* {inside} */"), [2, 3], inside)
        self.assertEqual(clauses("/// A guest who rings, and one who polls.\n# the log tells who\n"), [])


if __name__ == "__main__":
    unittest.main()
