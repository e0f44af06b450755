"""``covey crds``."""

from __future__ import annotations

from pathlib import Path

import click

from covey.api.crds import KINDS, definition, render, write
from covey.cli import options
from covey.cli.data import echo_json, echo_names, full_name
from covey.cli.errors import CommandError
from covey.manifests.errors import InputError


@click.command()
@options.output(("yaml", "json", "name"), "yaml")
@click.option("--output-dir", "directory", metavar="DIR", help="Write a YAML file for each into this directory.")
def crds(form: str, directory: str | None) -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`."""
    if directory is not None:
        _write(directory, form)
    elif form == "yaml":
        click.echo("---\n".join(render().values()), nl=False)
    else:
        definitions = [definition(kind) for kind in KINDS]
        if form == "json":
            echo_json({"apiVersion": "v1", "kind": "List", "items": definitions})
        else:
            echo_names(full_name(body["apiVersion"], body["kind"], body["metadata"]["name"]) for body in definitions)


def _write(directory: str, form: str) -> None:
    if form != "yaml":
        raise InputError("--output-dir", f"writes YAML, but -o says {form}", "leave out one of them")
    try:
        write(Path(directory))
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise CommandError(f"{directory}: cannot be written: {what}; give a directory that can") from None
