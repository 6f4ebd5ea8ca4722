#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The recipes for CI services (qemu/ci), whose commands run here as they stand there: in bare trees of Debian 12 and 13 that
have the recipes' packages, as an ordinary user (TAP).

usage: recipes.py DIRECTORY, which has the bundle and its checksum
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "qemu"), str(CHECKOUT / "tests/guest")]

from guestlib import Tap, check  # noqa: E402
from labkit import cache, debian, tree  # noqa: E402

CI = CHECKOUT / "qemu/ci"
BUNDLE = "file:///bundle/ferrule-lab.tar.xz"
USER = 1000
SECONDS = 400

# The program of a project, by the name that it has in the examples.
MY_TEST = """\
#!/bin/sh
echo 1..1
ibv_devinfo -d "$1" | grep -q PORT_ACTIVE && echo "ok 1 - $1 is up" || echo "not ok 1 - $1 is up"
"""


def block(text, key):
    """The text below each line `key: |` or `key:` of a file in YAML: as much of YAML as the recipes use."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.fullmatch(rf"( *(?:- )?){key}:(?: \|)?", line)
        if match:
            body = []
            for below in lines[number + 1:]:
                if below.strip() and len(below) - len(below.lstrip()) <= len(match[1]):
                    break
                body.append(below)
            found.append("\n".join(body))
    check(found, f"there is no {key}")
    return found


def items(text, key):
    return [line.strip().removeprefix("- ") for line in block(text, key)[0].splitlines()]


def packages():
    """The packages that the recipe for GitLab installs; GitHub's machines have them."""
    line = next(line for line in items((CI / "gitlab.yml").read_text(), "before_script") if "install" in line)
    return [word for word in line.split(" install ")[1].split() if not word.startswith("-")]


def bare(release, names):
    """A tree of a release of Debian with these packages and apt."""

    def build(directory, step):
        debian.bootstrap(directory / "root", names, step, release=release)

    return cache.entry("bare", {"suite": release, "packages": names, "layout": 1}, f"making a tree of {release}", build) / "root"


class Machine:
    """A machine of a CI service: a tree of its own, a home, and the checkout of a project."""

    def __init__(self, suite, directory, bundle):
        self.root = bare(suite, packages())
        self.home, self.project = directory / "home", directory / "project"
        for path in (self.home, self.project):
            path.mkdir()
        program = self.project / "my-test"
        program.write_text(MY_TEST)
        program.chmod(0o755)
        if os.geteuid() == 0:
            for path in (self.home, self.project, program):
                os.chown(path, USER, USER)
        self.binds = [(bundle, "/bundle"), (self.home, "/home"), (self.project, "/project"), (CI, "/action")]

    def script(self, shell, script, wanted=0, network=True, **environment):
        """Run a step; returns what it printed."""
        settings = {"HOME": "/home", "PATH": "/usr/bin:/bin"} | environment
        # Others than root are root in the tree by their user namespace alone.
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
        words = ["env", "-i", *(f"{name}={value}" for name, value in settings.items()), *user, *shell, script]
        if not network:
            words = ["unshare", "--net", *words]
        done = subprocess.run(tree.command(words, self.binds, "/project", self.root), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS)
        check(done.returncode == wanted, f"status {done.returncode} and not {wanted} of\n{script}\n{done.stdout}")
        return done.stdout


# As the services run them.
GITHUB = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")
GITLAB = ("bash", "-e", "-o", "pipefail", "-c")

# The values that GitHub fills into the action's steps, by the last word of their names.
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTEXTS = {"action_repository": "owner/ferrule", "action_ref": "v9", "temp": "/home/temp",
            "bundle": BUNDLE, "nodes": "1", "peer": "", "timeout": "300", "junit": ""}


def results(machine):
    suite = ElementTree.parse(machine.project / "results.xml").getroot().find("testsuite")
    return [(case.get("name"), [child.tag for child in case]) for case in suite]


def step(machine, number, wanted=0, network=True, **contexts):
    """Run a step of the action, filled in as GitHub does it: steps of a composite action have no GITHUB_ACTION_REF and no
    GITHUB_ACTION_REPOSITORY."""
    text = (CI / "action.yml").read_text()
    script, lines = block(text, "run")[1 + number], block(text, "env")[number].splitlines()
    contexts = CONTEXTS | contexts
    settings = {"GITHUB_ACTION_PATH": "/action", "GITHUB_OUTPUT": "/home/output", "GITHUB_SERVER_URL": "https://forge.example"}
    for name, value in (line.strip().split(": ", 1) for line in lines if not line.strip().startswith("#")):
        settings[name] = re.sub(r"\$\{\{ [\w.]+\.(\w+) \}\}", lambda found: contexts[found[1]], value)
    return machine.script(GITHUB, script, wanted, network, **settings)


def outputs(machine, **contexts):
    """The outputs of the step that names the bundle."""
    machine.script(GITHUB, ": > /home/output")
    step(machine, 0, **contexts)
    return dict(line.split("=", 1) for line in (machine.home / "output").read_text().splitlines())


def action(machine):
    """The steps of the action, twice: the second time the bundle is in the cache, and there is no network."""
    for network in (True, False):
        output = outputs(machine)
        check(output["url"] == BUNDLE and re.fullmatch(r"ferrule-[0-9a-f]{16}", output["key"]), f"outputs: {output}")
        step(machine, 1, network=network, url=output["url"])
        if network:
            step(machine, 2, run="./my-test ferrule0", junit="results.xml")
            check(results(machine) == [("ferrule0 is up", [])], f"results: {results(machine)}")
        else:
            step(machine, 2, network=False, run="ping -c 1 10.77.0.2", nodes="2", peer="sleep 60")
    logs = sorted(path.name for path in (machine.home / "temp/ferrule/runs").glob("*/node?.log"))
    check(logs == ["node1.log", "node1.log", "node2.log"], f"logs: {logs}")


def action_that_fails(machine):
    """The status of the command is that of the step."""
    step(machine, 2, 9, run="exit 9")


def bundle_of_the_release(machine):
    """Without an own URL, the bundle is that of the action's release, which a commit has not."""
    found = outputs(machine, bundle="", action_ref="v9")["url"]
    check(found == "https://forge.example/owner/ferrule/releases/download/v9/ferrule-lab.tar.xz", found)
    for ref in (COMMIT, ""):
        said = step(machine, 0, 1, bundle="", action_ref=ref)
        check(f"'{ref}' is no tag of a release" in said, said)
    check(outputs(machine, action_ref=COMMIT)["url"] == BUNDLE, "a bundle's own URL is not taken with a commit")


def bundle_that_cannot_be_fetched(machine):
    for url, telling in (("file:///bundle/none.tar.xz", "cannot be fetched"), ("file:///home/ferrule-lab.tar.xz", "is not what")):
        (machine.home / "ferrule-lab.tar.xz").write_text("something else")
        shutil.copy(machine.binds[0][0] / "ferrule-lab.tar.xz.sha256", machine.home)
        said = machine.script(GITHUB, f"/action/fetch {url} ~/other", 1)
        check(f"fetch: {url}" in said and telling in said, said)


def gitlab(machine):
    """All lines of the example but apt's."""
    text = (CI / "gitlab.yml").read_text()
    lines = [line for line in items(text, "before_script") if not line.startswith("apt-get ")] + items(text, "script")
    machine.script(GITLAB, "\n".join(lines), BUNDLE=BUNDLE, FERRULE_CACHE="/project/.ferrule/cache")
    check(results(machine) == [("ferrule0 is up", [])], f"results: {results(machine)}")
    check(list((machine.project / ".ferrule/cache/runs").glob("*/node1.log")), "no log of a kernel")


def main():
    tap = Tap()
    bundle = Path(sys.argv[1]).resolve()
    for suite in ("bookworm", "trixie"):
        directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
        directory.chmod(0o755)
        try:
            machine = Machine(suite, directory, bundle)
            for case in (action, action_that_fails, bundle_of_the_release, bundle_that_cannot_be_fetched, gitlab):
                tap.case(f"{suite}_{case.__name__}", case, machine)
        finally:
            shutil.rmtree(directory)
    tap.end()


if __name__ == "__main__":
    main()
