"""Options that several commands share, named as kubectl names them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from covey.manifests.errors import InputError
from covey.manifests.sources import STDIN

F = TypeVar("F", bound=Callable[..., Any])


def files(*, required: bool = True) -> Callable[[F], F]:
    """``-f PATH…``."""
    text = "Manifests, YAML or JSON: files, directories, - for standard input. Repeatable, or with commas."
    return _paths("-f", "--filename", "files", required=required, help=text)


def recursive(command: F) -> F:
    """``-R``."""
    text = "Look into directories in directories too."
    return click.option("-R", "--recursive", is_flag=True, help=text)(command)


def _paths(*names: str, **more: Any) -> Callable[[F], F]:
    return click.option(*names, metavar="PATH", multiple=True, callback=split, **more)


def output(forms: Sequence[str], default: str) -> Callable[[F], F]:
    """``-o FORM``."""
    text = f"{', '.join(forms)}. Default: {default}."
    kind = click.Choice(forms)
    return click.option("-o", "--output", "form", type=kind, metavar="FORM", default=default, help=text)


def no_headers(command: F) -> F:
    """``--no-headers``."""
    text = "Rows alone on standard output; reasons go to standard error. For tables."
    return click.option("--no-headers", is_flag=True, help=text)(command)


def cluster(command: F) -> F:
    """``-n``, ``--context`` and ``--kubeconfig``."""
    for option in (
        click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config."),
        click.option("--context", metavar="NAME", help="A context of the kubeconfig."),
        click.option("-n", "--namespace", metavar="NS", help="Default: the context's, else default."),
    ):
        command = option(command)
    return command


def refuse_cluster(context: str | None, kubeconfig: str | None, remedy: str) -> None:
    """Refuse to name a cluster for a command that reads files and asks none.

    Raises:
        InputError: a cluster is named all the same.
    """
    for option, value in (("--context", context), ("--kubeconfig", kubeconfig)):
        if value:
            raise InputError(option, "names a cluster, but none is asked", remedy)


def no_color(command: F) -> F:
    """``--no-color``."""
    return click.option("--no-color", is_flag=True, help="No colours; NO_COLOR=1 does the same.")(command)


def topology(command: F) -> F:
    """``--topology``, where no node tells the levels."""
    text = "A ClusterTopology, for the levels of node labels; `convert` takes those of the shipped presets without it."
    return _paths("--topology", "topologies", help=text)(command)


def facts(command: F) -> F:
    """``--nodes``, ``--pods`` and ``--topology``; each takes what ``-f`` takes."""
    for option in (
        _paths("--topology", "topologies", help="A ClusterTopology; detected from the nodes' labels when left out."),
        _paths("--pods", help="What `kubectl get pods -A -o json` prints."),
        _paths("--nodes", help="What `kubectl get nodes -o json` prints."),
    ):
        command = option(command)
    return command


def split(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Take comma lists apart; a path with a comma stands in double quotes, as for kubectl (a click callback).

    Raises:
        InputError: it is no such list, a path is empty, or standard input is named twice in one command.
    """
    option = "/".join(parameter.opts)
    try:
        paths = tuple(path for value in values for path in next(csv.reader([value])) or [""])
    except csv.Error as error:
        raise InputError(option, f"is no comma list of paths: {error}", "put such a path in double quotes") from None
    if not all(paths):
        raise InputError(option, "names an empty path", "give a file, a directory, or - for standard input")
    times = context.meta.get(__name__, 0) + paths.count(STDIN)
    if times > 1:
        raise InputError(option, "standard input is named twice, but can be read once", "put one of them in a file")
    context.meta[__name__] = times
    return paths
