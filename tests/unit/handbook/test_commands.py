"""Which commands a block has, and which are not run."""

import pytest

from docs.commands import Command, commands, skipped
from handbook.pages import PageError, parse


def found(text: str) -> list[Command]:
    page = parse(text, "page.md")
    return [command for block in page.blocks for command in commands(page, block)]


def test_a_script_has_a_command_for_each_line() -> None:
    text = "```sh\n# a remark\nmake cluster   # another\n\nkubectl get pods\n```\n"
    assert [(each.text, each.line) for each in found(text)] == [
        ("make cluster   # another", 3),
        ("kubectl get pods", 5),
    ]


@pytest.mark.parametrize(
    "command",
    [
        "helm install covey helm/covey \\\n  --wait",
        "kubectl apply -f - <<EOF\nkind: Pod\nEOF",
        "for node in a b; do\n  echo $node\ndone",
        "kubectl patch dinf one -p '\n{}'",
    ],
)
def test_a_command_goes_on_until_it_is_whole(command: str) -> None:
    assert [each.text for each in found(f"```sh\n{command}\necho\n```\n")] == [command, "echo"]


def test_a_session_has_commands_and_their_output() -> None:
    text = "```console\n$ kubectl apply \\\n>   -f a.yaml\napplied\n\n$ kubectl get dinf\nNAME\none\n```\n"
    assert [(each.text, each.output) for each in found(text)] == [
        ("kubectl apply \\\n  -f a.yaml", "applied"),
        ("kubectl get dinf", "NAME\none"),
    ]


def test_directives_are_about_the_last_command() -> None:
    (first, last) = found("<!-- test: exit 3 -->\n<!-- test: until -->\n```sh\none\ntwo\n```\n")
    assert (first.status, first.endless, last.status, last.endless) == (0, False, 3, True)


def test_what_is_skipped_is_known_by_its_reason() -> None:
    text = "<!-- test: skip (docker): there is no engine -->\n```sh\ndocker build .\n```\n"
    assert found(text) == []
    ((each),) = skipped(parse(text, "page.md"))
    assert (each.page, each.kind, each.why) == ("page.md", "docker", "there is no engine")


@pytest.mark.parametrize(
    "directive", ["skip", "skip because", "skip (mood): I do not like it", "skip (docker):", "exits 3"]
)
def test_other_directives_are_errors(directive: str) -> None:
    page = parse(f"<!-- test: {directive} -->\n```sh\necho\n```\n", "page.md")
    with pytest.raises(PageError, match=r"page\.md:"):
        [*skipped(page), *commands(page, page.blocks[0])]


@pytest.mark.parametrize("text", ["```console\nNAME\n```\n", "```sh\n# nothing\n```\n"])
def test_a_block_of_commands_has_some(text: str) -> None:
    with pytest.raises(PageError, match=r"page\.md:1: a "):
        found(text)
