# SPDX-License-Identifier: GPL-2.0
"""Unit tests of the documentation: the names at the top, links and names in the pages, and their length."""

import re
import sys
import tempfile
import tomllib
import unittest
from fnmatch import fnmatch
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests"))

from runner.suite import read_all

TOP = {".ci", ".git", ".gitignore", "Kbuild", "Makefile", "README.md", "drivers", "include", "qemu", "rust", "tests",
       "userspace-provider"}

# Two screens: a reader who wants more follows the links.
SHORT = ("README.md", "drivers/infiniband/sw/ferrule/README.md")
LINES = 110
COLUMNS = 100

DRIVER = Path("drivers/infiniband/sw/ferrule")
ENGINE = DRIVER / "engine"

# A name of a file begins at the page's directory or at the checkout. The driver's pages also count from the driver, from
# the engine, and from the engine's source.
ROOTS = {DRIVER: (DRIVER, ENGINE, ENGINE / "src")}

SOURCES = (".c", ".h", ".md", ".py", ".rs", ".sh", ".toml", ".txt")

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"#+ +(.*)")
_PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z]{3,}(?![A-Za-z])")
_NAME = re.compile(r"[\w.*/-]+")


def ignored(name: str, patterns: str) -> bool:
    """Whether .gitignore has a pattern for this name at the top."""
    plain = (line.strip("/") for line in patterns.splitlines() if line and not line.startswith("#"))
    return any(fnmatch(name, pattern) for pattern in plain)


def pages(checkout: Path = CHECKOUT) -> list[Path]:
    """The pages of the checkout, without what builds leave behind."""
    patterns = (checkout / ".gitignore").read_text()
    found = (page.relative_to(checkout) for page in sorted(checkout.rglob("*.md")))
    return [page for page in found if not any(part == ".git" or ignored(part, patterns) for part in page.parts)]


def anchors(text: str) -> set[str]:
    """The words that a link may name behind '#': the headings, as forges write them."""
    headings = (match[1] for match in map(_HEADING.fullmatch, text.splitlines()) if match)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path, checkout: Path = CHECKOUT) -> list[str]:
    """The relative links of a page whose file or heading is not there."""
    dead = []
    for link in _LINK.findall((checkout / page).read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = checkout / page.parent / name if name else checkout / page
        if not target.exists() or anchor and anchor not in anchors(target.read_text()):
            dead.append(link)
    return dead


def roots(page: Path) -> list[Path]:
    more = [root for above, some in ROOTS.items() if above in page.parents for root in some]
    return [page.parent, Path("."), *more]


def is_file_name(word: str, starts: list[Path]) -> bool:
    """Whether a word looks like the name of a file or a directory of the tree."""
    if word.startswith(("/", "-", "*")) or not _NAME.fullmatch(word) or _PLACEHOLDER.search(word.replace("README", "")):
        return False
    if word.endswith(SOURCES):
        return True
    first, slash, _ = word.partition("/")
    return bool(slash) and first not in (".", "..", "") and any((start / first).is_dir() for start in starts)


def absent_files(page: Path, checkout: Path = CHECKOUT) -> list[str]:
    """The names in backquotes that look like a file of the tree, and are none. Of a command, the first word counts."""
    starts = [checkout / root for root in roots(page)]
    patterns = (checkout / ".gitignore").read_text()
    absent = []
    for span in _SPAN.findall((checkout / page).read_text()):
        word = span.split()[0] if span.split() else ""
        if not is_file_name(word, starts) or ignored(word.split("/")[0], patterns):
            continue
        if not any(next(start.glob(word), None) for start in starts):
            absent.append(word)
    return absent


class Checkout(unittest.TestCase):
    def test_top_level(self):
        patterns = (CHECKOUT / ".gitignore").read_text()
        names = {path.name for path in CHECKOUT.iterdir() if not ignored(path.name, patterns)}
        self.assertEqual(names - TOP, set(), "nothing else belongs at the top")
        self.assertEqual(TOP - names - {".git"}, set())

    def test_pages_are_found(self):
        self.assertIn(Path("README.md"), pages())
        self.assertIn(DRIVER / "Documentation/wire-protocol.md", pages())

    def test_links(self):
        for page in pages():
            with self.subTest(page=str(page)):
                self.assertEqual(dead_links(page), [])

    def test_names_of_files(self):
        for page in pages():
            with self.subTest(page=str(page)):
                self.assertEqual(absent_files(page), [])

    def test_counters(self):
        driver = CHECKOUT / DRIVER
        shown = re.findall(r'c"(\w+)":', (driver / "soft/statistics.rs").read_text())
        counted = re.findall(r"^    pub (\w+): u\d+,", (CHECKOUT / ENGINE / "src/base/counters.rs").read_text(), re.MULTILINE)
        self.assertTrue(shown and counted)
        page = (driver / "Documentation/observability.md").read_text()
        self.assertEqual({*shown, *counted} - set(_SPAN.findall(page)), set())

    def test_suites_that_stay_with_soft(self):
        """Each has its reason in the page."""
        page = (CHECKOUT / "tests/README.md").read_text()
        table = page.partition("These stay with soft:")[2].partition("\n\n|")[2].partition("\n\n")[0]
        named = [name for row in table.splitlines()[2:] for name in row.split("|")[1].strip().split(", ")]
        suites = {path.stem: tomllib.loads(path.read_text()) for path in (CHECKOUT / "tests/suites").glob("*.toml")}
        soft = {name for name, suite in suites.items() if suite["where"] == "guest" and "nic" not in suite.get("backends", ())}
        self.assertEqual({name for name in soft if not any(fnmatch(name, pattern) for pattern in named)}, set())
        self.assertEqual([pattern for pattern in named if not any(fnmatch(name, pattern) for name in soft)], [])

    def test_suites_of_the_function_in_short_runs(self):
        text = (CHECKOUT / "tests/README.md").read_text().partition("## The PCI function")[2]
        on_function = [one for one in read_all() if one.backend == "nic"]
        for about, expected in (
                ("Long runs alone have", {one.file for one in on_function if one.why_only_long("stock")}),
                ("The debug kernel has", {one.file for one in on_function if not one.why_only_long("debug")})):
            told = text.partition(about)[2].partition(" there")[0]
            self.assertEqual(set(_SPAN.findall(told)), expected, about)

    def test_first_pages_are_short(self):
        for page in SHORT:
            with self.subTest(page=page):
                lines = (CHECKOUT / page).read_text().splitlines()
                self.assertLessEqual(len(lines), LINES)
                self.assertLessEqual(max(map(len, lines)), COLUMNS)


class Checks(unittest.TestCase):
    """The tests above at pages that are wrong."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.checkout = Path(directory.name)
        (self.checkout / ".gitignore").write_text("# Made.\n*.o\n/build/\n")
        driver = self.checkout / DRIVER
        (driver / "Documentation").mkdir(parents=True)
        (driver / "soft").mkdir()
        (driver / "soft/shard.rs").touch()
        (self.checkout / "run").touch()

    def page(self, text: str, name: str = "README.md") -> Path:
        (self.checkout / name).write_text(text)
        return Path(name)

    def test_ignored(self):
        patterns = (self.checkout / ".gitignore").read_text()
        self.assertTrue(ignored("build", patterns))
        self.assertTrue(ignored("a.o", patterns))
        self.assertFalse(ignored("builder", patterns))

    def test_what_is_built_is_no_page(self):
        (self.checkout / "build").mkdir()
        self.page("", "build/left.md")
        self.assertEqual(pages(self.checkout), [])

    def test_dead_links(self):
        page = self.page("# Two words, here\n[a](#two-words-here) [b](run) [c](#two) [d](gone.md) [e](https://e.org/x)\n")
        self.assertEqual(dead_links(page, self.checkout), ["#two", "gone.md"])

    def test_absent_files(self):
        page = self.page("`drivers/infiniband/sw/ferrule/soft/shard.rs` `drivers/gone` `gone.rs` `run --all`\n"
                         "`build/x.rs` `/sys/x.rs` `a/b` `suites/NAME.toml` `drivers/*/sw/` `drivers/*.rs`\n")
        self.assertEqual(absent_files(page, self.checkout), ["drivers/gone", "gone.rs", "drivers/*.rs"])

    def test_absent_files_of_the_driver(self):
        page = self.page("`soft/shard.rs` `soft/gone.rs`\n", str(DRIVER / "Documentation/design.md"))
        self.assertEqual(absent_files(page, self.checkout), ["soft/gone.rs"])


if __name__ == "__main__":
    unittest.main()
