"""``covey explain``: why a resource is pending, degraded or held."""

from __future__ import annotations

import click
import msgspec

from covey.cli import options
from covey.cli.console import open_console
from covey.cli.data import echo_json, echo_yaml
from covey.cli.live_objects import look


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
    """Explain why a DisaggregatedInference is pending, degraded or held: a reason at each node of its tree.

    What has nothing to say is one line; `covey status` shows all of it. Below the tree stand who gives way to it, as
    Preemptions tell, what each reason means, and what to do.
    """
    view = look(name, namespace, context, kubeconfig)
    (branch,), advice, preemptions = view.trees(), view.advice(), view.describe_preemptions()
    explained = {**msgspec.to_builtins(branch), "preemptions": preemptions, "advice": msgspec.to_builtins(advice)}
    if form == "json":
        echo_json(explained)
    elif form == "yaml":
        echo_yaml([explained])
    else:
        from covey.cli.render.live import print_advice, print_branch, print_headroom, print_preemptions  # noqa: PLC0415 - needs rich, which may be missing

        console = open_console(no_color=no_color)
        print_branch(branch, console, whole=False)
        print_headroom(view.inferences[0], console)
        print_preemptions(preemptions, console)
        print_advice(advice, console)
