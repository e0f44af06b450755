"""Commands of a page: which a block has, which are not run, and the shell that runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.commands import Command, commands, skipped
from docs.shell import Shell
from handbook.pages import PageError, parse
from localcluster import eventually


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


@pytest.mark.parametrize(
    "directive", ["skip", "skip because", "skip (mood): I do not like it", "skip (docker):", "exits 3"]
)
def test_other_directives_are_errors(directive: str) -> None:
    page = parse(f"<!-- test: {directive} -->\n```sh\necho\n```\n", "page.md")
    with pytest.raises(PageError, match=r"page\.md:"):
        [*skipped(page), *commands(page, page.blocks[0])]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, {"HOME": str(tmp_path)}) as running:
        yield running


def test_what_was_printed_is_copied_where_a_page_leaves_it_out(shell: Shell) -> None:
    shell.run("echo '  export ONE=first'; echo; echo '  export TWO=second:$ONE      # and a remark'")
    assert shell.run("export ONE=… TWO=…     # as printed").status == 0
    assert shell.variable("TWO") == "second:first"


def test_an_endless_command_is_interrupted(shell: Shell) -> None:
    running = shell.begin("trap 'echo ended; exit' INT; echo begun; while :; do sleep 0.05; done")
    eventually(lambda: running.printed == "begun\n")
    running.interrupt()
    eventually(lambda: running.printed == "begun\nended\n")
    assert shell.run("echo on").printed == "on\n"
