"""The table of scenarios and backends, and what counts as declared."""

import pytest

from conftest import share
from matrix.outcome import BEGIN, END, OK, committed, differs, refused, render, replaced

TABLE = render(
    ["one", "two"], ["A", "B"], {("one", "A"): OK, ("one", "B"): refused("x | y"), ("two", "B"): differs("how")}
)
DOCUMENT = f"# Title\n\n{BEGIN}\n| old |\n{END}\n\nMore.\n"


def test_a_row_for_each_scenario_and_a_column_for_each_backend() -> None:
    assert TABLE.splitlines() == [
        "|  | A | B |",
        "| --- | :---: | :---: |",
        "| one | ✔ | *refused:* x \\| y |",
        "| two |  | *differs:* how |",
    ]


def test_the_committed_table_is_what_was_written() -> None:
    assert committed(DOCUMENT) == "| old |\n"
    written = replaced(DOCUMENT, TABLE)
    assert committed(written) == TABLE
    assert written.startswith("# Title\n")
    assert written.endswith(f"{END}\n\nMore.\n")
    assert replaced(written, TABLE) == written


@pytest.mark.parametrize("document", ["", BEGIN, END])
def test_a_document_without_the_markers_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="lacks"):
        replaced(document, TABLE)


def test_of_a_refusal_some_words_are_declared_and_of_a_difference_all() -> None:
    assert refused("spec.spread").covers(refused("spec.spread: use Extender"))
    assert not refused("spec.spread").covers(refused("spec.proximity: use Extender"))
    assert not refused("spec.spread").covers(differs("spec.spread"))
    assert differs("a").covers(differs("a"))
    assert not differs("a").covers(differs("a, b"))
    assert OK.covers(OK)
    assert not OK.covers(differs("a"))


@pytest.mark.parametrize("column", ["Extender 1.37", "Volcano 1.14"])
def test_the_tests_of_a_backend_share_a_process(column: str) -> None:
    ids = [
        f"tests/matrix/test_matrix.py::test_it[{column}-one]",
        f"tests/matrix/test_matrix.py::test_it[{column}-two-2]",
        f"tests/matrix/test_volcano.py::test_special[{column}]",
    ]
    assert {share(each) for each in ids} == {f"tests/matrix/{column}"}


@pytest.mark.parametrize("name", ["test_it", "test_it[1.36-preemption]", "test_it[one]"])
def test_what_has_its_own_cluster_stays_together(name: str) -> None:
    assert share(f"tests/matrix/test_gates.py::{name}") == "tests/matrix/test_gates.py"
