"""``kubectl_complete-covey``: what kubectl runs to complete the words of ``kubectl covey``.

kubectl hands over the words behind ``covey``, the last of them unfinished or empty, and reads a candidate a line, with its
help behind a tab, and at last ``:`` and a directive of cobra's ``ShellCompDirective``.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from covey.cli.main import covey

#: cobra's ``ShellCompDirectiveNoFileComp`` and ``ShellCompDirectiveDefault``.
_NO_FILES, _DEFAULT = 4, 0


def main() -> None:
    """Print what the last word may become."""
    *words, unfinished = sys.argv[1:] or [""]
    candidates = ShellComplete(covey, {}, "covey", "_COVEY_COMPLETE").get_completions(words, unfinished)
    named = [candidate for candidate in candidates if candidate.type == "plain"]
    for candidate in named:
        click.echo(f"{candidate.value}\t{candidate.help}" if candidate.help else candidate.value)
    click.echo(f":{_NO_FILES if named and len(named) == len(candidates) else _DEFAULT}")
