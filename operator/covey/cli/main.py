"""The one entry point: ``covey``, ``kubectl-covey`` and ``python -m covey``.

A command's module is imported when that command runs, so that ``covey --help`` answers at once and ``covey plan``
never loads an operator framework. Whatever goes wrong is said in a sentence; a traceback is for those who ask.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from covey import __version__
from covey.cli.control_characters import guarded_terminals
from covey.cli.errors import FAILED
from covey.cli.usage_errors import HelpfulGroup, one_form

#: Command → module, the command's object in it, one line of help.
_COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "plan": ("plan", "plan", "Show where everything would be placed, or why not; offline or against a cluster."),
    "compile": ("compile", "compile_command", "Print the objects that a DisaggregatedInference expands to."),
    "convert": ("convert", "convert_command", "Convert workloads of other projects to DisaggregatedInferences."),
    "explain": ("explain", "explain", "Explain why a DisaggregatedInference is pending, degraded or held."),
    "status": ("status", "status", "Show the live state of a DisaggregatedInference as a tree."),
    "logs": ("logs", "logs", "Print the logs of a DisaggregatedInference's pods, each line with its pod."),
    "scale": ("scale", "scale", "Set how many replicas roles have."),
    "rollout": ("rollout", "rollout", "Show, pause, resume, undo or restart a rollout."),
    "headroom": ("headroom", "headroom", "Show how many more replicas of each role would fit now."),
    "exchange": ("exchange", "exchange", "Exchange replicas of one role for those of another, all or none."),
    "top": ("top", "top", "Show used, free and stranded GPUs by topology level."),
    "ui": ("ui", "ui", "Serve a live web page of the cluster."),
    "drain": ("drain", "drain", "Cordon nodes and have gangs leave them as soon as possible."),
    "crds": ("crds", "crds", "Print the CustomResourceDefinitions."),
    "operator": ("processes", "operator", "Run the operator."),
    "scheduler": ("processes", "scheduler", "Run the scheduler process, or print kube-scheduler's configuration."),
    "release-budgets": (
        "release_budgets",
        "release_budgets",
        "Delete the budgets of gangs, so that nodes can be drained without Covey.",
    ),
    "release-jobs": ("release_jobs", "release_jobs", "Resume the Jobs that Covey suspends until it is their turn."),
    "version": ("version", "version", "Print client and server versions."),
}


class _Commands(HelpfulGroup):
    """Commands by name, loaded when they are used."""

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        """Parse the options before the command's name."""
        with one_form():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the command's own arguments, and run it."""
        with one_form():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List commands in the order in which they are most used."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command = getattr(import_module(f"covey.cli.commands.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version", message="covey %(version)s")
def covey() -> None:
    """Schedule disaggregated LLM inference on Kubernetes as one thing."""


def main() -> None:
    """Run the command that the arguments name, and exit with its status."""
    # What is imported stays: Python's own threshold, 700, has the collector walk all of it dozens of times.
    gc.set_threshold(50_000, 20, 100)
    with guarded_terminals():
        _run()


def _run() -> None:
    try:
        covey.main(prog_name=_program())
    except Exception as error:
        if os.environ.get("COVEY_TRACEBACK"):
            raise
        text = " ".join(str(error).split()) or "no further word"
        click.echo(f"error: unexpected {type(error).__name__}: {text}; COVEY_TRACEBACK=1 shows where", err=True)
        sys.exit(FAILED)


def _program() -> str:
    called = os.path.basename(sys.argv[0])  # noqa: PTH119 - a path of no file, only its end is shown
    return "kubectl covey" if called.startswith("kubectl-") else "covey"
