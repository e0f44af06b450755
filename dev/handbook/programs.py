"""The reference of the command line, in Markdown, from what ``covey --help`` says."""

from __future__ import annotations

from collections.abc import Iterator

import click

from covey.cli.main import covey


def reference() -> str:
    """Every command with its sentences and options; a command's heading has its name as anchor."""
    context = click.Context(covey, info_name="covey")
    return "\n".join(line for name in covey.list_commands(context) for line in _command(covey, context, name))


def _command(group: click.Group, above: click.Context, name: str) -> Iterator[str]:
    command = group.get_command(above, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=above)
    path = context.command_path
    anchor = path.replace(" ", "-")
    yield from (f"### `{path}`", "")
    pieces = command.collect_usage_pieces(context)
    yield from ("```text", f"{path} {' '.join(pieces)}".rstrip(), "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (_cell(paragraph), "")
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from _command(command, context, below)
    else:
        yield from _options(command, context, anchor)


def _options(command: click.Command, context: click.Context, anchor: str) -> Iterator[str]:
    rows = [(record[0], record[1]) for each in command.params if (record := each.get_help_record(context))]
    if rows:
        yield from ("| option | |", "|---|---|")
    for names, text in rows:
        long = next((word for word in names.replace(",", " ").split() if word.startswith("--")), names)
        mark = f"{anchor}{long.replace('--', '-', 1)}"
        yield f'| <span id="{mark}"></span>`{names}` | {_cell(text)} |'
    yield ""


def _cell(text: str) -> str:
    """Text in which no character means anything to a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
