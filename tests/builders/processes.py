"""Processes as containers start them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from covey.cli.main import covey
from covey.cli.settings import load_settings
from covey.kube.settings import ProcessSettings
from handbook.settings import MODELS


def started_with(args: Sequence[str]) -> ProcessSettings:
    """The settings of a process that is started with these arguments, the first of which is its name."""
    process, *flags = args
    command = covey.get_command(click.Context(covey), process)
    assert command is not None
    return load_settings(MODELS[process], command.make_context(process, flags).params, {})


def containers_of(objects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The containers of Deployments that start a process with settings."""
    specs = [each["spec"]["template"]["spec"] for each in objects if each and each.get("kind") == "Deployment"]
    containers = [container for spec in specs for container in spec.get("containers", ())]
    return [container for container in containers if container.get("args", [""])[0] in MODELS]
