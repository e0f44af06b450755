"""Pages and tables that have no source of their own."""

import pytest
import yaml

from handbook import decisions, examples
from handbook.generated import fill, outdated_pages
from handbook.pages import DOCS, ROOT


def test_every_example_has_a_page_with_its_text_as_it_stands() -> None:
    pages = examples.pages()
    for path in [path for suffix in ("yaml", "py") for path in (ROOT / "examples").rglob(f"*.{suffix}")]:
        page = pages[f"examples/{path.relative_to(ROOT / 'examples').as_posix()}.md"]
        assert path.read_text().strip() in page, path


def test_every_example_says_what_it_is() -> None:
    for line in examples.table().splitlines()[2:]:
        name, sentence = line.strip("| ").split(" | ")[0], line.strip("| ").partition(" | ")[2]
        if not name.startswith("[`offline/"):
            assert sentence.strip(), name


def test_links_to_examples_lead_to_their_pages() -> None:
    assert examples.page_of("examples/disaggregated.yaml") == "examples/disaggregated.yaml.md"
    assert examples.page_of("examples") == "examples/index.md"
    assert examples.page_of("examples/none.yaml") is None


def test_decisions_are_listed_by_number() -> None:
    rows = decisions.table().splitlines()[2:]
    assert len(rows) == len(list((DOCS / "decisions").glob("[0-9]*.md")))
    assert rows[0] == "| 1 | [Runtime dependencies](0001-runtime-dependencies.md) |"
    assert [int(row.split("|")[1]) for row in rows] == sorted(int(row.split("|")[1]) for row in rows)


def test_a_part_is_made_anew_between_its_marks() -> None:
    page = "# Decisions\n\n<!-- generated: decisions -->\nold\n<!-- end of generated -->\n\nBelow.\n"
    assert (
        fill(page)
        == f"# Decisions\n\n<!-- generated: decisions -->\n\n{decisions.table()}\n\n<!-- end of generated -->\n\nBelow.\n"
    )
    assert fill(fill(page)) == fill(page)


def test_a_part_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="does not end"):
        fill("<!-- generated: decisions -->\n\nBelow.\n")


def test_the_pages_are_up_to_date() -> None:
    assert [path.name for path in outdated_pages()] == []


def test_yaml_examples_are_yaml() -> None:
    for path in (ROOT / "examples").rglob("*.yaml"):
        assert list(yaml.safe_load_all(path.read_text())), path
