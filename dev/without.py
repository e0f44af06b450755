"""Leave out one feature (operator) or plugin (scheduler) after the other, and print which tests fail that do not name it.

``python dev/without.py [--only NAME] [TESTS ...]``. A seam is real where core and all others go on without what stands
behind it: the tests of a feature fail without it, and no others. A test names a feature where the words of ``WORDS`` are in
its source or in its file's name; tests that fail anyway are left out. Without TESTS: the unit tests of either process.

The same file is the plugin of pytest by which one is left out (``-p without``).
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

from covey.operator.process import features
from covey.scheduler import plugins

ROOT: Final = Path(__file__).resolve().parent.parent
#: What a test says that is about a feature, or a plugin: the words of the API for it, and its own name.
WORDS: Final = {
    "Evacuation": r"evacuat|cordon|notice|evict|drain|disruption|leav|moving",
    "Repair": r"repair|restart|fail|lost|loss|vanish|deadline|terminationDelay|strand|escalat|avoid|backoff",
    "Scalers": r"scaler|scaling|External|unit_leader|UNIT_LEADER",
    "ExchangedRoles": r"exchang|together|targets",
    "PreemptedReplicas": r"preempt|claim|give_?way|giving_way|victim|pardon",
    "Drains": r"drain|GATE_SERVING|in.flight",
    "StartOrder": r"start|depends|GATE_START|ungate|LeaderReady",
    "HeadRoom": r"head_?room",
    "NodeRequests": r"capacity|autoscaler|ProvisioningRequest|nodes_that_come|asks",
    "InferencePool": r"pool",
    "InPlaceUpdates": r"in_?place",
    "RequestRouting": r"routing|pair|exclusive|serves|endpoint",
    "ResourceQuotas": r"quota",
    "Rollout": r"roll|revision|edit|template\(|pair\(|update|surge|partition|image|deadline|evacuat|leav|complete",
    "RecreatedGroups": r"remake|remade|made_anew|fixed|recreat|immutable",
    "Intake": r"wake|intake|wait",
    "Quotas": r"quota|queue|borrow|reclaim",
    "Holding": r"hold|held|lost|loss|successor",
    "ExpectedPods": r"expected|job|missing",
    "BlockedGangs": r"block",
    "Exchanges": r"exchang|together",
    "Successors": r"succe",
    "Nominations": r"preempt|claim|reserv|kept|arriv|nominat|victim|prior|capacity|evacuat",
    "HeadroomQuestions": r"head_?room",
}
#: Names what is left out, and the file in which the plugin writes what failed.
LEFT_OUT: Final = "COVEY_WITHOUT"
REPORT: Final = "COVEY_WITHOUT_REPORT"


def leave_out(name: str) -> None:
    """Make both lists without one entry; an empty name leaves them whole."""
    lists = vars(features), vars(plugins)
    lists[0]["FEATURES"] = tuple(feature for feature in features.FEATURES if feature.__name__ != name)
    make_plugins = plugins.make_plugins
    lists[1]["make_plugins"] = lambda *parts: tuple(
        plugin for plugin in make_plugins(*parts) if type(plugin).__name__ != name
    )


class Recorder:
    """Writes the tests that failed, and whether each names what is left out."""

    def __init__(self, name: str, report: Path) -> None:
        self._words = re.compile(WORDS.get(name, r"$^"), re.IGNORECASE)
        self._report = report
        self._named: set[str] = set()
        self._failed: dict[str, bool] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """A property that fails is not made smaller: that it fails is all that is asked."""
        for name in ("covey", "storm"):
            profile = settings.get_profile(name)
            settings.register_profile(name, profile, max_examples=4, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("covey")

    def pytest_collection_modifyitems(self, items: Iterable[pytest.Item]) -> None:
        """Note which tests name it."""
        for item in items:
            function = getattr(item, "function", None)
            source = inspect.getsource(inspect.unwrap(function)) if function is not None else ""
            # That file leaves each of them out itself.
            if self._words.search(source) or self._words.search(item.path.stem) or item.path.stem == "test_features":
                self._named.add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self._failed[report.nodeid] = report.nodeid in self._named

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        self._report.write_text(json.dumps(self._failed))


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Leave one out before a test imports the lists."""
    leave_out(os.environ[LEFT_OUT])
    early_config.pluginmanager.register(Recorder(os.environ[LEFT_OUT], Path(os.environ[REPORT])))


def find_failures(name: str, tests: Iterable[str]) -> dict[str, bool]:
    """Run tests without a feature or plugin: those that fail, and whether each names it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        path = os.pathsep.join(str(ROOT / folder) for folder in ("operator", "dev"))
        environment = {**os.environ, LEFT_OUT: name, REPORT: str(report), "PYTHONPATH": path}
        command = [sys.executable, "-m", "pytest", "-p", "without", "-n0", "-q", "--tb=no", "--no-header"]
        # Without some part a test may wait for ever.
        command += ["-o", "timeout=60", *tests]
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
        found: dict[str, bool] = json.loads(report.read_text())
    return found


def main() -> None:
    """Print the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(WORDS), default=[])
    parser.add_argument("tests", nargs="*", default=[])
    arguments: Any = parser.parse_args()
    listed = {feature.__name__ for feature in features.FEATURES}
    failing: dict[str, frozenset[str]] = {}
    print(f"{'left out':20}{'red':>6}{'unnamed':>9}  files of unnamed")
    for name in arguments.only or WORDS:
        folder = "tests/unit/operator" if name in listed else "tests/unit/scheduler"
        tests = arguments.tests or [folder]
        if folder not in failing:
            failing[folder] = frozenset(find_failures("", tests))
        failed = {test: named for test, named in find_failures(name, tests).items() if test not in failing[folder]}
        files = Counter(Path(test.partition("::")[0]).name for test, named in failed.items() if not named)
        what = ", ".join(f"{file} {count}" for file, count in files.most_common())
        print(f"{name:20}{len(failed):6}{files.total():9}  {what}", flush=True)
        for test in sorted(test for test, named in failed.items() if not named):
            print(f"    {test}", flush=True)


if __name__ == "__main__":
    main()
