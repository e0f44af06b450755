"""The reference of the command line: every command and option."""

import re
from collections.abc import Iterator

import click

from covey.cli.main import covey
from handbook.programs import reference


def leaves(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its path."""
    if not isinstance(command, click.Group):
        yield context.command_path, command
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, click.Context(below, info_name=name, parent=context))


def test_every_command_has_a_heading_and_every_option_a_row() -> None:
    text = reference()
    for path, command in leaves(covey, click.Context(covey, info_name="covey")):
        start = text.index(f"### `{path}`\n")
        part = text[start : text.find("\n### ", start)]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[-1] in part, f"{path} {option.opts}"
                assert (option.help or "")[:20].replace("<", "&lt;").replace("[", "\\[") in part, (
                    f"{path} {option.opts}"
                )


def test_sentences_and_exit_codes_are_those_of_help() -> None:
    assert "Exit status: 0 every minimum is placed; 3 at least one workload is infeasible" in reference()


def test_marks_are_unique() -> None:
    found = re.findall(r'\{ #([\w-]+) \}|id="([\w-]+)"', reference())
    assert len(found) == len(set(found))
