"""Pages, and tables and references that are generated."""

import re

import yaml

from covey.api.crds import KINDS
from handbook import examples
from handbook.fields import reference
from handbook.generated import outdated_pages
from handbook.pages import ROOT, parse

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


def test_every_example_has_a_page_with_its_text_as_it_stands() -> None:
    pages = examples.pages()
    for path in [path for suffix in ("yaml", "py") for path in (ROOT / "examples").rglob(f"*.{suffix}")]:
        page = pages[f"examples/{path.relative_to(ROOT / 'examples').as_posix()}.md"]
        assert path.read_text().strip() in page, path


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


def test_every_link_of_a_field_leads_somewhere_once() -> None:
    found = [one or other for one, other in re.findall(r'<a id="([\w.-]+)"|<span id="([\w.-]+)"', reference())]
    assert len(found) == len(set(found))
    assert rows().keys() <= set(found)


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
