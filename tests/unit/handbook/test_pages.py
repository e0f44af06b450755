"""Pages, and tables and references that are generated."""

import re

import pytest
import yaml

from covey.api.crds import KINDS
from handbook import decisions, examples
from handbook.fields import reference
from handbook.generated import fill, outdated_pages
from handbook.pages import DOCS, ROOT, PageError, parse, without_directives

PAGE = """<!-- test: cluster empty --preset gke -->
# A page

Prose with a [link](other.md).

<!-- test: exit 3 -->
```sh title="no file"
covey plan -f one.yaml
```

=== "A tab"

    ```console
    $ kubectl get dinf
      two blanks
    ```

<!-- test: run
kubectl delete node one
kubectl delete node two
-->
"""


def test_blocks_come_in_order_with_their_directives() -> None:
    page = parse(PAGE, "page.md")
    assert [(block.language, block.text, block.line) for block in page.blocks] == [
        ("sh", "covey plan -f one.yaml", 7),
        ("console", "$ kubectl get dinf\n  two blanks", 13),
        ("sh", "kubectl delete node one\nkubectl delete node two", 18),
    ]
    assert [(each.word, each.rest) for each in page.blocks[0].directives] == [("exit", "3")]
    assert page.blocks[0].title == "no file"


def test_a_page_has_settings() -> None:
    (settings,) = parse(PAGE, "page.md").settings
    assert (settings.word, settings.rest) == ("cluster", "empty --preset gke")


def test_prose_is_what_is_left_line_by_line() -> None:
    prose = parse(PAGE, "page.md").prose.splitlines()
    assert prose[3] == "Prose with a [link](other.md)."
    assert "kubectl" not in "".join(prose)
    assert prose[10] == '=== "A tab"'


def test_readers_see_no_directive() -> None:
    text = without_directives(PAGE, "page.md")
    assert "test:" not in text
    assert "delete node" not in text
    assert "covey plan -f one.yaml" in text


def test_a_directive_in_a_block_is_text() -> None:
    page = "```text\n<!-- test: exit 3 -->\n```\n"
    assert without_directives(page, "page.md") == page
    assert parse(page, "page.md").blocks[0].directives == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```sh\necho\n", "page.md:1: the block does not end"),
        ("\n<!-- test: run\necho\n", "page.md:2: the directive does not end"),
        ("<!-- test: exit 3 -->\nprose\n", "page.md:1: no block follows"),
    ],
)
def test_what_is_not_whole_is_an_error(text: str, message: str) -> None:
    with pytest.raises(PageError, match=message):
        parse(text, "page.md")


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


ROW = re.compile(
    r'^\| (?:<span id="(?P<mark>[^"]*)"></span>)?\[`(?P<name>\w+)`\]\(#(?P<target>[^)]*)\) \|(?P<cells>.*)\|$'
)


def rows() -> dict[str, list[str]]:
    """The cells of every field's row, by the anchor that its name links to."""
    found = [match for line in reference().splitlines() if (match := ROW.match(line.replace("\\|", "/")))]
    return {match["target"]: [cell.strip() for cell in match["cells"].split("|")] for match in found}


def test_every_kind_has_its_part() -> None:
    headings = [line for line in reference().splitlines() if line.startswith("## ")]
    assert [line.split()[1] for line in headings] == [kind.model.__name__ for kind in KINDS]


def test_some_kinds_only() -> None:
    text = reference("ClusterTopology")
    assert "## ClusterTopology" in text
    assert "## Workload" not in text


def test_a_field_has_type_default_and_meaning_with_limits_and_class() -> None:
    kind, default, meaning = rows()["disaggregatedinference.spec.replicas"]
    assert (kind, default) == ("integer", "`1`")
    assert meaning.startswith("Serving units. Each is one whole gang")
    assert "0 to 999" in meaning
    assert "minimum 0" not in meaning
    assert "Default" not in meaning
    assert "maxItems 8" in rows()["disaggregatedinference.spec.proximity"][2]
    assert rows()["disaggregatedinference.spec.rollout.historyLimit"][1] == "`10`"
    assert ">in place<" in meaning
    assert rows()["disaggregatedinference.spec.suspend"][1] == "`false`"
    assert rows()["disaggregatedinference.spec.backend"][0] == "`Auto`, `Extender`, `Kubernetes`, `Volcano`"
    assert ">immutable<" in rows()["disaggregatedinference.spec.backend"][2]
    assert rows()["disaggregatedinference.spec.roles"][:2] == ["list of object", "**required**"]
    assert rows()["disaggregatedinference.spec.roles.update.maxSurge"][0] == "integer or percentage"


def test_a_status_has_no_defaults() -> None:
    assert len(rows()["disaggregatedinference.status.conditions.type"]) == 2


def test_every_link_of_a_field_leads_somewhere_once() -> None:
    found = [one or other for one, other in re.findall(r'<a id="([\w.-]+)"|<span id="([\w.-]+)"', reference())]
    assert len(found) == len(set(found))
    assert rows().keys() <= set(found)


def test_rules_are_listed_where_they_hold_with_their_messages() -> None:
    text = reference()
    assert "| `spec.roles[].minReplicas` | minReplicas is greater than replicas" in text
    assert "| `spec.topology.name` | topology.name is immutable" in text
    assert "| `spec.roles[].template.spec.nodeName` | nodeName is Covey's own" in text
    assert "has(self.minReplicas)" in text


def test_every_rule_of_the_models_is_there() -> None:
    from covey.api.schema import structural  # noqa: PLC0415 - for this test alone

    def messages(node: object) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(messages, node))
        if not isinstance(node, dict):
            return set()
        own = {rule["message"] for rule in node.get("x-kubernetes-validations", ())}
        return own.union(*map(messages, node.values()))

    plain = reference().replace("\\", "").replace("&lt;", "<")
    for kind in KINDS:
        missing = {text for text in messages(structural(kind.model)) if " ".join(text.split()) not in plain}
        assert not missing, kind.model.__name__


def test_a_table_row_is_never_broken_by_its_text() -> None:
    for line in reference().splitlines():
        cells = line.strip().replace("\\|", "").count("|")
        if line.startswith(("| <span", "| [`")):
            assert cells in {4, 5}, line
        if line.startswith("    | `"):
            assert cells == 4, line
