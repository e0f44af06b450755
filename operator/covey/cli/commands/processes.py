"""``covey operator`` and ``covey scheduler``: settings, logs, then the process."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from covey.cli.client import in_words
from covey.cli.errors import CommandError
from covey.cli.settings import announce, load_settings, options
from covey.kube.errors import KubeError
from covey.operator.process.settings import OperatorSettings
from covey.scheduler.config import render
from covey.scheduler.settings import SchedulerSettings

_NO_ADDRESS: Final = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


@click.command()
@options(OperatorSettings)
def operator(**flags: Any) -> None:
    """Run the operator: it compiles every DisaggregatedInference into objects and runs their life cycle."""
    settings = load_settings(OperatorSettings, flags)
    from covey.operator.process.main import run  # noqa: PLC0415 - an operator framework, which the scheduler process has no use for

    announce("operator", settings)
    _end(lambda: run(settings))


@click.command()
@options(SchedulerSettings)
@click.option("--print-scheduler-config", is_flag=True, help="Print kube-scheduler's configuration and exit.")
def scheduler(print_scheduler_config: bool, **flags: Any) -> None:  # noqa: FBT001 - a flag
    """Run the scheduler process: it decides who may start and where, and guards kube-scheduler."""
    if print_scheduler_config:
        click.echo(render(load_settings(SchedulerSettings, flags)), nl=False)
        return
    settings = load_settings(SchedulerSettings, flags, check=SchedulerSettings.check_serving)
    from covey.scheduler.main import run  # noqa: PLC0415 - a planner and servers, which the operator has no use for

    announce("scheduler", settings)
    _end(lambda: run(settings))


def _end(run: Callable[[], int]) -> None:
    """Exit with the process's status; what keeps it from starting is said in a sentence."""
    try:
        status = run()
    except KubeError as error:
        raise CommandError(in_words(error)) from error
    except OSError as error:
        if error.errno not in _NO_ADDRESS and not isinstance(error, socket.gaierror):
            raise
        raise CommandError(f"cannot listen: {error.strerror}; check the --…bind-address flags") from error
    sys.exit(status)
