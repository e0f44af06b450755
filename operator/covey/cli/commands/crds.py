"""``covey crds``."""

from __future__ import annotations

from pathlib import Path

import click

from covey.api.crds import render, write
from covey.cli.errors import CommandError


@click.command()
@click.option("-o", "--output", "directory", metavar="DIR", help="Write a file for each into this directory.")
def crds(directory: str | None) -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`."""
    if directory is None:
        click.echo("---\n".join(render().values()), nl=False)
        return
    try:
        write(Path(directory))
    except OSError as error:
        raise CommandError(f"{directory}: cannot be written: {(error.strerror or str(error)).lower()}") from None
