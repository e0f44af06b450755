"""``covey status``: the live tree."""

from __future__ import annotations

import click

from covey.cli import options
from covey.cli.console import open_console
from covey.cli.data import echo_json, echo_names, echo_yaml, full_name
from covey.cli.errors import CommandError
from covey.cli.live_objects import LiveObjects, look
from covey.kube.resources import DISAGGREGATED_INFERENCES
from covey.manifests.errors import InputError
from covey.picture.floor import Floor
from covey.watching.usage import floor_now


@click.command()
@click.argument("name", required=False)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All there are, in every namespace.")
@options.cluster
@options.output(("tree", "table", "picture", "json", "yaml", "name"), "tree")
@options.no_headers
@options.no_color
def status(
    name: str | None,
    everywhere: bool,  # noqa: FBT001 - a flag
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_headers: bool,  # noqa: FBT001 - a flag
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """Show the live state of one DisaggregatedInference, or of all, as a tree: what is ready, where it lies, what it waits for."""
    if name is not None and everywhere:
        raise InputError("-A", "means all there are, but one is named", "leave out -A, or the name")
    view = look(name, namespace, context, kubeconfig, everywhere=everywhere)
    trees = view.trees()
    if form == "json":
        echo_json(trees[0] if name is not None else {"items": trees})
    elif form == "yaml":
        echo_yaml(trees)
    elif form == "name":
        kind = DISAGGREGATED_INFERENCES
        echo_names(full_name(kind.api_version, kind.kind, inference.metadata.name) for inference in view.inferences)
    else:
        from covey.cli.picture.text import print_picture  # noqa: PLC0415 - needs rich, which may be missing
        from covey.cli.render.live import print_advice, print_branch, print_branches  # noqa: PLC0415 - the same

        console = open_console(no_color=no_color)
        if form == "picture":
            print_picture(_floor(view), console)
            return
        if not trees:
            click.echo("No DisaggregatedInference found.", err=True)
        elif form == "table":
            print_branches(trees, console, heads=not no_headers)
        else:
            for tree in trees:
                print_branch(tree, console, whole=True)
            print_advice(view.absences(), console)


def _floor(view: LiveObjects) -> Floor:
    try:
        return floor_now(view.inferences, view.facts)
    except LookupError as error:
        raise CommandError(f"{error.args[0]}; mark one as default") from None
