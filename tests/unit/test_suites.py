"""Suites name what is there: targets of the Makefile, files of tests, paths of the product."""

import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import suites

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
SUITES = [*suites.landing(), *suites.everything(1), *(suite for _, suite in suites.TOUCHED)]


@pytest.fixture(scope="module")
def paths() -> list[str]:
    """What git knows of the tree."""
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_suite_names_a_target_and_files_that_exist(suite: suites.Suite) -> None:
    assert suite.target in TARGETS
    files = re.findall(r"tests/[\w/]+\.py", suite.arguments)
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert 1 <= suite.processes <= 2


@pytest.mark.parametrize("patterns", [patterns for patterns, _ in suites.TOUCHED])
def test_row_of_the_table_names_paths_that_exist(patterns: tuple[str, ...], paths: list[str]) -> None:
    assert [pattern for pattern in patterns if not any(fnmatchcase(path, pattern) for path in paths)] == []


def test_extra_suites_follow_what_changed_in_the_order_of_the_table() -> None:
    changed = [
        "operator/covey/operator/capacity/asks.py",
        "docs/how-to/ui.md",
        "operator/covey/backends/volcano/groups.py",
    ]
    assert [suite.name for suite in suites.extra(changed)] == [
        "test-docs (docs/how-to/ui.md)",
        "test-matrix (Volcano)",
        "test-life (Karpenter)",
    ]
    assert suites.extra(["operator/covey/api/roles.py"]) == []


def test_run_keeps_the_order_and_names_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text("good:\n\t@echo $(ARGS)\nbad:\n\t@exit 3\n")
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    (tmp_path / "logs").mkdir()
    run = suites.Run(tmp_path / "logs")
    assert run.play([suites.Suite("good", "one"), suites.Suite("bad", processes=2), suites.Suite("good")], 2) == []
    assert run.failed == ["bad"]


def test_run_begins_nothing_when_time_is_up(tmp_path: Path) -> None:
    suite = suites.Suite("test")
    assert suites.Run(tmp_path).play([suite], 2, until=0.0) == [suite]
