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
def test_the_scenarios_of_a_backend_share_a_process(column: str) -> None:
    ids = [f"tests/matrix/test_matrix.py::test_it[{column}-{name}]" for name in ("one", "two")]
    assert {share(each) for each in ids} == {f"tests/matrix/{column}"}


def test_what_is_special_to_a_backend_stays_together() -> None:
    ids = [f"tests/matrix/test_volcano.py::test_it[{number}]" for number in range(2)]
    assert {share(each) for each in ids} == {"tests/matrix/test_volcano.py"}
