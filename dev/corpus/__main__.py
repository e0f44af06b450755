"""``python -m corpus``: make each edit of the corpus in a copy of the tree, and see whether a test finds it."""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

from corpus.edits import AnchorError, Edit, make_edit, read_edits
from corpus.results import RESULTS, SURVIVED, find_lost, is_red, read_results, write_results
from corpus.trees import ROOT, Session, Tree

#: Tests that judge together, by the name of their column in the results.
SUITES: Final = {"unit": "tests/unit", "cluster": "tests/cluster", "life": "tests/cluster/life"}
#: Tests that are run together to judge an edit, one after another until one fails.
Attempts = Callable[[Edit], Iterable[Sequence[str]]]


def main() -> int:
    """Run the command; the exit status is 1 where an edit does not apply, or was red before and is no more."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the copies are removed
    arguments = _parse()
    edits = read_edits()
    if unknown := set(arguments.edits or ()) - {edit.name for edit in edits}:
        raise SystemExit(f"no such edits: {', '.join(sorted(unknown))}")
    edits = [edit for edit in edits if not arguments.edits or edit.name in arguments.edits]
    errors = {edit.name: error for edit in edits if (error := _find_error(edit))}
    for name, error in errors.items():
        print(f"{name}: {error}")
    if arguments.check:
        print(f"{len(edits) - len(errors)} of {len(edits)} edits apply")
        return 1 if errors else 0
    suite = "tests" if arguments.tests else arguments.suite
    results = read_results(arguments.results)
    before = results.get(suite, {})
    kept = {name: verdict for name, verdict in before.items() if verdict.startswith(SURVIVED) and not arguments.edits}
    judged = [edit for edit in edits if edit.name not in errors | kept]
    verdicts = errors | _judge(judged, arguments.tests or [SUITES[suite]], before, arguments)
    print(f"{sum(map(is_red, verdicts.values()))} of {len(edits)} red by {suite}")
    if survivors := [edit.name for edit in edits if edit.name in kept]:
        print(f"{', '.join(survivors)}: survived before, and judged only where --edits names them")
    lost = find_lost(before, verdicts)
    for name, test in lost.items():
        print(f"LOST {name}, which {test} found before: {verdicts[name]}")
    if arguments.write:
        write_results(arguments.results, read_edits(), results | {suite: before | verdicts})
    return 1 if lost or errors else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m corpus", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only see that every edit applies")
    parser.add_argument("--suite", choices=SUITES, default="unit", help="the tests that judge (default: %(default)s)")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="judge by these instead, in a column of their own")
    parser.add_argument("--edits", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time (default: %(default)s)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FILE", help="what was found before (default: results.md)"
    )
    parser.add_argument("--write", action="store_true", help="write what is found into the results")
    parser.add_argument(
        "--mapped", action="store_true", help="take who enters which function from the last run, where it knows"
    )
    return parser.parse_args()


def _find_error(edit: Edit) -> str | None:
    try:
        make_edit(edit, ROOT)
    except AnchorError as error:
        return f"does not apply: {error}"
    return None


def _judge(
    edits: Sequence[Edit], tests: Sequence[str], before: Mapping[str, str], arguments: argparse.Namespace
) -> dict[str, str]:
    """Find the verdict on each edit: by the test that found it last, and where that does not by all that enter it."""
    trees = [Tree() for _ in range(arguments.jobs)]
    try:
        former = {
            edit.name: test for edit in edits if is_red(test := before.get(edit.name, "")) and trees[0].has_test(test)
        }
        failed = (
            set(map(_drop_parameters, trees[0].run(sorted(set(former.values())), "-n0").failed)) if former else set()
        )
        known = [edit for edit in edits if edit.name in former and former[edit.name] not in failed]
        verdicts = _judge_all(trees, known, lambda edit: [[former[edit.name]]], ())
        verdicts = {name: verdict for name, verdict in verdicts.items() if is_red(verdict)}
        if rest := [edit for edit in edits if edit.name not in verdicts]:
            session = _record(trees[0], rest, tests, arguments)
            for test in session.failed:
                print(f"{test} fails without any edit, and judges nothing")
            verdicts |= _judge_all(trees, rest, lambda edit: _list_attempts(session, edit), session.failed)
        return verdicts
    finally:
        for tree in trees:
            tree.close()


def _judge_all(
    trees: Sequence[Tree], edits: Sequence[Edit], attempts: Attempts, deselected: Collection[str]
) -> dict[str, str]:
    """Judge edits, one in each tree at a time."""
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def judge(edit: Edit) -> tuple[str, str]:
        tree, count = free.get(), 0
        try:
            for count, attempt in enumerate(attempts(edit), 1):  # noqa: B007 - there may be none
                if failure := tree.find_failure(edit, attempt, deselected):
                    verdict = _drop_parameters(failure)
                    break
            else:
                verdict = SURVIVED if count else f"{SURVIVED}: no test enters it"
        except RuntimeError as error:
            verdict = f"no verdict: {str(error).splitlines()[0]}"
        finally:
            free.put(tree)
        print(f"{'red' if is_red(verdict) else '':4}{edit.name}: {verdict}", flush=True)
        return edit.name, verdict

    with ThreadPoolExecutor(len(trees)) as pool:
        return dict(pool.map(judge, edits))


def _list_attempts(session: Session, edit: Edit) -> Iterable[Sequence[str]]:
    """List the tests that enter what an edit changes, those of the same package first; at last all tests of their files.

    What is computed once for several tests counts as entered by the first of them alone.
    """
    tests = {test for place in edit.places for test in session.entered.get(place, ())}
    packages = {Path(place).parts[0] for place in edit.places}
    seconds: dict[str, float] = defaultdict(float)
    for test in tests:
        seconds[_file_of(test)] += session.seconds.get(test, 0.0)
    ordered = sorted(tests, key=lambda test: (seconds[_file_of(test)], test))
    near = [test for test in ordered if not packages.isdisjoint(Path(_file_of(test)).parts)]
    attempts = (near, [test for test in ordered if test not in near], list(dict.fromkeys(map(_file_of, ordered))))
    return [attempt for attempt in attempts if attempt]


def _record(tree: Tree, edits: Sequence[Edit], tests: Sequence[str], arguments: argparse.Namespace) -> Session:
    """Find who enters what edits change; it is kept below ``build``, by the paths of the tests."""
    path = ROOT / "build" / "corpus" / f"{'+'.join(tests).replace('/', '.')}.json"
    kept = Session(**json.loads(path.read_text())) if arguments.mapped and path.exists() else Session((), {}, {})
    places = {place for edit in edits for place in edit.places} - kept.entered.keys()
    if not places:
        there = {place: [test for test in tests if tree.has_test(test)] for place, tests in kept.entered.items()}
        return Session(kept.failed, kept.seconds, there)
    parallel = [f"--numprocesses={arguments.jobs}", "--dist=loadscope"] if arguments.jobs > 1 else ["-n0"]
    session = tree.record([edit for edit in edits if not places.isdisjoint(edit.places)], tests, *parallel)
    entered = {place: sorted(session.entered.get(place, ())) for place in places}
    session = Session(session.failed, session.seconds, {**kept.entered, **entered})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(session)))
    return session


def _drop_parameters(test: str) -> str:
    return test.partition("[")[0]


def _file_of(test: str) -> str:
    return test.partition("::")[0]


if __name__ == "__main__":
    sys.exit(main())
