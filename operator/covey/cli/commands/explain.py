"""``covey explain``: why a resource is pending, degraded or held."""

from __future__ import annotations

import click

from covey.cli import options
from covey.cli.data import echo_json, echo_yaml
from covey.cli.watching.look import look


@click.command()
@click.argument("name")
@options.cluster
@options.output(("tree", "json", "yaml"), "tree")
@options.no_color
def explain(
    name: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """Why a running DisaggregatedInference is pending, degraded or held: a reason at each node of its tree.

    What has nothing to say is one line; `covey status` shows all of it.
    """
    (branch,) = look(name, namespace, context, kubeconfig).trees()
    if form == "json":
        echo_json(branch)
    elif form == "yaml":
        echo_yaml([branch])
    else:
        from covey.cli.console import open_console  # noqa: PLC0415 - rich, only where it is drawn with
        from covey.cli.render.live import print_branch  # noqa: PLC0415 - the same

        print_branch(branch, open_console(no_color=no_color), whole=False)
