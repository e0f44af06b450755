"""Run the suites of tests: ``python dev/suites.py landing`` those that decide a landing, ``… all`` every one.

Each suite is a target of the Makefile with its arguments. At most two test processes run at a time for a landing: one waits
most of the time, the other takes a processor; with more, limits that are about hangs strike work that is merely slow.
Seconds are printed beside what they should be, and fail nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: The commit whose tree passed all suites last; a landing adds suites for what differs from it.
BASE: Final = ROOT / ".ci" / "base"
#: Seconds after which no further suite is begun for what differs.
EXTRA_SECONDS: Final = 600
#: Pages that are run for one change at the most.
MOST_PAGES: Final = 8
#: Projects of others whose programs do not decide a landing.
OTHERS: Final = ("test_karpenter", "test_lws_controller", "test_dra_kwok_driver")
#: Files of stories that `make test` plays.
CORE: Final = [
    Path(path).stem
    for path in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    if path.endswith(".py")
]
SEED: Final = 3302
#: Without the arguments of the make that has called this, which would be every suite's.
_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in {"ARGS", "MAKEFLAGS"}}


@dataclass(frozen=True)
class Suite:
    """A target of the Makefile.

    Attributes:
        target: its name there.
        arguments: ``ARGS`` for it.
        processes: how many test processes it has, of the two that run at a time.
        seconds: what it should take, alone and warm.
        label: what it is called, where that is not the target.
        environment: variables for it alone.
    """

    target: str
    arguments: str = ""
    processes: int = 1
    seconds: int = 0
    label: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What is printed of it."""
        return self.label or self.target


def _without(folder: str, *names: str) -> str:
    """The files of tests below a folder, but those of some names."""
    files = sorted((ROOT / folder).rglob("test_*.py"))
    return " ".join(str(file.relative_to(ROOT)) for file in files if file.stem not in names)


def landing() -> list[Suite]:
    """The suites that decide whether a change may land."""
    one = "--numprocesses 1 "
    life = f"{one}-m 'not slow' "
    # The longest first, so that both ends come at about the same time.
    return [
        Suite("test", processes=2, seconds=180),
        Suite("test-life", life + _without("tests/stories", *CORE), seconds=600, label="test-life (stories)"),
        Suite(
            "test-life", life + _without("tests/cluster", *OTHERS), seconds=300, label="test-life (processes, rules)"
        ),
        Suite("test-install", _without("tests/install", "test_panels"), seconds=200),
        Suite("test-ui", seconds=150),
        Suite("soak", f"--seed {SEED} --seconds 60", seconds=90),
        Suite(
            "test-docs",
            f"{one}tests/docs/test_site.py {_page('README.md')} {_page('docs/quickstart.md')}",
            seconds=80,
            label="test-docs (site, README, quickstart)",
        ),
        Suite("check", seconds=60),
        Suite("test-examples", "tests/examples/test_planned.py tests/examples/test_python.py", seconds=30),
    ]


def everything(seed: int) -> list[Suite]:
    """All suites; what is drawn by chance is drawn anew, from the seed."""
    chance = {"COVEY_HYPOTHESIS": "random", "PYTEST_ADDOPTS": f"--hypothesis-seed={seed}"}
    return [
        Suite("check", seconds=60),
        Suite("test-matrix", seconds=900),
        Suite("test-slow", seconds=700, environment=chance),
        Suite("test-install", seconds=700),
        Suite("test", seconds=300, environment=chance),
        Suite("test-life", seconds=600),
        Suite("test-docs", seconds=500),
        Suite("test-ui", seconds=150),
        Suite("test-routers", seconds=200),
        Suite("test-examples", seconds=100),
        Suite("lint", seconds=70),
        Suite("image-check", seconds=30),
        Suite("soak", f"--seed {seed} --seconds 600", processes=2, seconds=660),
    ]


def _release(name: str) -> Suite:
    return Suite("test-matrix", f"--numprocesses 1 -k '{name}'", label=f"test-matrix ({name})")


#: Which paths of the product want which suite besides, in the order in which they are run.
TOUCHED: Final[tuple[tuple[tuple[str, ...], Suite], ...]] = (
    (("operator/covey/backends/volcano/*",), _release("Volcano")),
    (("operator/covey/backends/kubernetes/*", "operator/covey/admission/native*"), _release("1.37")),
    (("operator/covey/backends/kubernetes/*",), _release("1.36")),
    (("operator/covey/backends/kubernetes/*",), _release("1.35")),
    (
        ("operator/covey/operator/process/job*", "operator/covey/operator/model/job*", "*leader_worker_set*"),
        Suite("test-life", "--numprocesses 1 tests/cluster/life/test_lws_controller.py", label="test-life (LWS)"),
    ),
    (
        ("operator/covey/scheduler/dra*", "operator/covey/placement/cluster/slices*", "*/cluster/device_claims*"),
        Suite("test-life", "--numprocesses 1 tests/cluster/life/test_dra_kwok_driver.py", label="test-life (DRA)"),
    ),
    (
        ("operator/covey/operator/capacity/*", "operator/covey/scheduler/arrivals*"),
        Suite("test-life", "--numprocesses 1 tests/cluster/life/test_karpenter.py", label="test-life (Karpenter)"),
    ),
    (
        ("helm/*", "operator/covey/observability/*"),
        Suite("test-install", "tests/install/test_panels.py", label="panels"),
    ),
    (("examples/routers/*", "operator/covey/compile/network*"), Suite("test-routers")),
    (("examples/*",), Suite("test-examples")),
    (
        ("operator/covey/placement/*", "operator/covey/admission/*", "tests/oracle/*"),
        Suite("test-slow", label="oracle"),
    ),
    (("Dockerfile", "requirements/*"), Suite("image-check")),
    (("helm/*", "manifests/*", "Dockerfile"), Suite("lint")),
)


def extra(changed: Sequence[str]) -> list[Suite]:
    """The suites that some changed paths want besides: the pages among them first, then by the table."""
    pages = [path for path in changed if re.fullmatch(r"docs/(?!decisions|reference).*\.md", path)]
    found = [
        Suite("test-docs", f"--numprocesses 1 {_page(path)}", label=f"test-docs ({path})")
        for path in pages[:MOST_PAGES]
        if (ROOT / path).exists()
    ]
    if len(pages) > MOST_PAGES:
        print(f"left to test-all: {len(pages) - MOST_PAGES} more pages: {' '.join(pages[MOST_PAGES:])}")
    for patterns, suite in TOUCHED:
        if any(fnmatchcase(path, pattern) for path in changed for pattern in patterns):
            found.append(suite)
    return found


def _page(path: str) -> str:
    return f"'tests/docs/test_pages.py::test_every_command_runs[{path}]'"


def changed_paths() -> list[str]:
    """The paths in which the tree differs from the base; none where there is no base, or it is not in this clone."""
    if not BASE.exists():
        return []
    base = BASE.read_text().strip()
    done = subprocess.run(
        ["git", "diff", "--name-only", base, "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"no suites are added for what differs from {base}: {done.stderr.strip()}")
    return done.stdout.split()


class Run:
    """Suites that run side by side, with what each took."""

    def __init__(self, logs: Path) -> None:
        self.failed: list[str] = []
        self.cpu = 0.0
        self._logs = logs
        self._running: dict[subprocess.Popen[bytes], tuple[Suite, float, Path]] = {}

    def play(self, suites: Sequence[Suite], processes: int, until: float = float("inf")) -> list[Suite]:
        """Run suites in their order, as many at a time as have that many test processes together.

        Args:
            suites: what to run.
            processes: how many test processes may run at a time.
            until: the monotonic time after which none is begun.

        Returns:
            Those that were not begun.
        """
        waiting = list(suites)
        while waiting and time.monotonic() < until:
            if self._running and self._busy() + waiting[0].processes > processes:
                self._take_ended()
            else:
                self._begin(waiting.pop(0))
        while self._running:
            self._take_ended()
        return waiting

    def _busy(self) -> int:
        return sum(suite.processes for suite, _, _ in self._running.values())

    def _begin(self, suite: Suite) -> None:
        log = self._logs / re.sub(r"\W+", "-", f"{suite.name}-{len(list(self._logs.iterdir()))}")
        command = ["make", suite.target, *([f"ARGS={suite.arguments}"] if suite.arguments else [])]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**_ENVIRONMENT, **suite.environment},
            )
        self._running[process] = (suite, time.monotonic(), log)

    def _take_ended(self) -> None:
        pid, status, usage = os.wait3(0)
        process = next(process for process in self._running if process.pid == pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        suite, begun, log = self._running.pop(process)
        wall, cpu = time.monotonic() - begun, usage.ru_utime + usage.ru_stime
        self.cpu += cpu
        aim = f" of {suite.seconds} s" if suite.seconds else ""
        over = ", A THIRD OVER" if suite.seconds and wall > suite.seconds * 4 / 3 else ""
        text = log.read_text(errors="replace")
        if process.returncode:
            self.failed.append(suite.name)
            print(f"== {suite.name} FAILED after {wall:.0f} s", text, sep="\n", flush=True)
        else:
            print(f"== {suite.name}: {wall:.0f} s{aim}, {cpu:.0f} s of processor{over}")
            print(*text.rstrip().splitlines()[-3:], sep="\n", flush=True)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Run what is asked for; exit with 1 when a suite failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=["landing", "all"])
    parser.add_argument("--seed", type=int, help="of all that is drawn by chance; another at each run of all")
    given = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as logs:
        run = Run(Path(logs))
        if given.what == "landing":
            seed = SEED
            run.play(landing(), 2)
            left = run.play(extra(changed_paths()), 2, time.monotonic() + EXTRA_SECONDS)
            for suite in left:
                print(f"left to test-all: {suite.name}")
        else:
            seed = random.randrange(10**6) if given.seed is None else given.seed
            run.play(everything(seed), 2)
            if not run.failed and not _git("status", "--porcelain"):
                BASE.write_text(_git("rev-parse", "HEAD") + "\n")
                print(f"{BASE.relative_to(ROOT)} names this commit now: commit it")
    print(
        f"{given.what}: commit {_git('rev-parse', '--short=8', 'HEAD')}, seed {seed}, {time.monotonic() - begun:.0f} s, "
        f"{run.cpu:.0f} s of processor, failed: {', '.join(run.failed) or 'nothing'}"
    )
    sys.exit(bool(run.failed))


if __name__ == "__main__":
    main()
