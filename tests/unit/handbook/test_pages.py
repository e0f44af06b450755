"""How a page is read."""

import pytest

from handbook.pages import PageError, parse, without_directives

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
