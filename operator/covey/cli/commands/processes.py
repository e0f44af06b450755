"""``covey operator`` and ``covey scheduler``: settings, logs, then the process."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from covey.cli.errors import CommandError
from covey.cli.live import in_words
from covey.cli.settings import Common, OperatorConfig, SchedulerConfig, effective
from covey.kube.errors import KubeError
from covey.manifests.sources import InputError
from covey.observability.logging import configure, get_logger
from covey.scheduler.config import render

F = TypeVar("F", bound=Callable[..., Any])

_NO_ADDRESS: Final = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


def _common(command: F) -> F:
    """The flags of both processes."""
    options = [
        click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config, then in-cluster."),
        click.option("--context", metavar="NAME", help="A context of the kubeconfig."),
        click.option("--namespace", "-n", "namespaces", metavar="NS", multiple=True, help="Repeatable. Default: all."),
        click.option("--all-namespaces", "-A", is_flag=True, help="All, whatever the file or COVEY_NAMESPACE say."),
        click.option(
            "--leader-elect",
            metavar="BOOL",
            is_flag=False,
            flag_value="true",
            help="Take a Lease first. Default: true.",
        ),
        click.option("--leader-elect-namespace", metavar="NS", help="Where the Lease lies. Default: covey-system."),
        click.option("--metrics-bind-address", metavar="ADDRESS", help="Default: :8080."),
        click.option("--health-probe-bind-address", metavar="ADDRESS", help="Default: :8081."),
        click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error. Default: info."),
        click.option("--verbose", "-v", is_flag=True, help="The same as --log-level=debug."),
        click.option("--quiet", "-q", is_flag=True, help="The same as --log-level=warning."),
        click.option("--log-format", metavar="FORMAT", help="json or console. Default: json."),
        click.option("--config", metavar="FILE", help="Settings in YAML; COVEY_… variables and flags override it."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_common
@click.option("--metrics-workload-limit", metavar="N", help="Resources with gauges of their own. Default: 500.")
@click.option(
    "--backends",
    metavar="NAME",
    multiple=True,
    help="Extender, Kubernetes, Volcano: what resources may ask for; repeatable, or with commas. Default: Extender.",
)
@click.option(
    "--autoscaler-taints",
    metavar="KEYS",
    help="Keys of taints, with commas, by which autoscalers announce that they delete a node. Default: those of "
    "cluster-autoscaler and Karpenter.",
)
@click.option(
    "--evacuation-taints",
    metavar="KEYS",
    help="Keys of other NoSchedule taints, with commas, that replicas leave a node for. Default: none.",
)
@click.option("--avoid-node-after", metavar="N", help="Failures on a node; 0: never. Default: 3.")
@click.option("--avoid-node-seconds", metavar="SECONDS", help="How long it is avoided then. Default: 600.")
@click.option(
    "--probe-namespace",
    metavar="NAME",
    help="Where dry runs ask what the API server keeps. Default: --namespace, else --leader-elect-namespace.",
)
@click.option(
    "--probe-image", metavar="IMAGE", help="Of the pod in these dry runs, which no node ever gets. Default: pause."
)
@click.option(
    "--capacity-provider",
    metavar="KIND",
    help="ProvisioningRequest or CapacityBuffer: the object in which an autoscaler is asked for nodes. Default: None.",
)
@click.option(
    "--capacity-class",
    metavar="NAME",
    help="Class of ProvisioningRequests. Default: best-effort-atomic-scale-up.autoscaling.x-k8s.io.",
)
@click.option("--capacity-after-seconds", metavar="SECONDS", help="Without room, before it is asked. Default: 30.")
@click.option(
    "--capacity-wait-seconds", metavar="SECONDS", help="Patience with an answer that brings no node. Default: 900."
)
@click.option("--capacity-surplus", metavar="BOOL", help="Ask for replicas beyond the minimum, too. Default: true.")
@click.option(
    "--job-gangs", metavar="BOOL", is_flag=False, flag_value="true", help="Jobs with covey.dev/gang start whole."
)
@click.option(
    "--native-groups",
    metavar="BOOL",
    is_flag=False,
    flag_value="true",
    help="Replace pods of groups of scheduling.k8s.io that lost their places.",
)
@click.option(
    "--leader-worker-sets",
    metavar="BOOL",
    is_flag=False,
    flag_value="true",
    help="Groups of LeaderWorkerSets with covey.dev/gang in their templates start whole.",
)
@click.option(
    "--compute-domains",
    metavar="BOOL",
    is_flag=False,
    flag_value="true",
    help="Honour spec.interconnect: ComputeDomains.",
)
@click.option(
    "--inference-pools",
    metavar="BOOL",
    is_flag=False,
    flag_value="true",
    help="Make InferencePools (spec.routing.pool).",
)
def operator(config: str | None, **flags: Any) -> None:
    """Run the operator: it compiles every DisaggregatedInference into objects and runs their life cycle."""
    found = effective(OperatorConfig, config, os.environ, _resolve_switches(flags))
    settings = found.settings()
    from covey.operator.process.main import run  # noqa: PLC0415 - an operator framework, which the scheduler process has no use for

    _announce("operator", found)
    _end(lambda: run(settings))


@click.command()
@_common
@click.option("--bind-address", metavar="ADDRESS", help="Of the extender. Default: 127.0.0.1:8890.")
@click.option("--endpoint-mode", metavar="MODE", help="sidecar or service. Default: sidecar.")
@click.option("--tls-cert-file", metavar="FILE", help="Serve the extender with TLS.")
@click.option("--tls-private-key-file", metavar="FILE", help="The certificate's key.")
@click.option("--client-ca-file", metavar="FILE", help="Ask callers for a certificate of this authority.")
@click.option(
    "--client-name",
    metavar="NAME",
    multiple=True,
    help="Common or DNS names of certificates that may call; repeatable, or with commas. Default: covey-kube-scheduler.",
)
@click.option("--kube-scheduler-ca-file", metavar="FILE", help="To print: where kube-scheduler has our authority.")
@click.option("--kube-scheduler-cert-file", metavar="FILE", help="To print: where kube-scheduler has its certificate.")
@click.option("--kube-scheduler-key-file", metavar="FILE", help="To print: where kube-scheduler has its key.")
@click.option(
    "--scheduler-name",
    metavar="NAME",
    multiple=True,
    help="The profiles that are served; repeatable, or with commas. Default: covey-scheduler.",
)
@click.option(
    "--pod-name", metavar="NAME", help="The pod of this process; behind a Service it is labelled when active."
)
@click.option("--pod-namespace", metavar="NS", help="That pod's namespace.")
@click.option("--reserve-after", metavar="DURATION", help="Waiting time that earns a reservation. Default: 300s.")
@click.option("--max-reservations", metavar="N", help="Waiting gangs with a domain kept at a time. Default: 4.")
@click.option("--max-reservations-per-namespace", metavar="N", help="Of these, in one namespace. Default: 1.")
@click.option(
    "--max-reserved-percent",
    metavar="N",
    help="Of all there is of a resource, what is kept for them at most, but for the first. Default: 5.",
)
@click.option(
    "--max-preemptions-per-minute",
    metavar="N",
    help="Waiting gangs in a minute to which others of lower priority give way; 0: none. Default: 6.",
)
@click.option(
    "--max-min-run",
    metavar="DURATION",
    help="Whatever has served for so long may give way to others, whatever minRunSeconds says. Default: 1800s.",
)
@click.option(
    "--preempt-ordinary-pods",
    metavar="Never|Evict",
    help="Whether ordinary pods of lower priority are evicted for waiting gangs, within their budgets. Default: Never.",
)
@click.option("--max-hold", metavar="DURATION", help="Room of a lost pod is held no longer than this. Default: 120s.")
@click.option(
    "--yield-to-priority",
    metavar="N",
    help="Ordinary pods of this priority or more may preempt members, and take reserved room. Default: 2000000000.",
)
@click.option(
    "--guarded-resource",
    metavar="NAME",
    multiple=True,
    help="To print: for pods that want one of these an attached kube-scheduler asks Covey; repeatable, or with commas; "
    "*: for all pods. Default: GPUs and other accelerators of seven drivers.",
)
@click.option(
    "--native-groups",
    metavar="BOOL",
    is_flag=False,
    flag_value="true",
    help="Plan the groups of scheduling.k8s.io whose pods have Covey's gate.",
)
@click.option("--print-scheduler-config", is_flag=True, help="Print kube-scheduler's configuration and exit.")
def scheduler(config: str | None, print_scheduler_config: bool, **flags: Any) -> None:  # noqa: FBT001 - a flag
    """Run the scheduler process: it decides who may start and where, and guards kube-scheduler."""
    found = effective(SchedulerConfig, config, os.environ, _resolve_switches(flags))
    settings = found.settings()
    if print_scheduler_config:
        click.echo(render(settings), nl=False)
        return
    found.check_endpoint()
    found.check_files()
    from covey.scheduler.main import run  # noqa: PLC0415 - a planner and servers, which the operator has no use for

    _announce("scheduler", found)
    _end(lambda: run(settings))


def _resolve_switches(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags without the switches that ``kopf run`` has: each stands for a value of another flag.

    Raises:
        InputError: two of them contradict each other.
    """
    everywhere, verbose, quiet = (flags.pop(name) for name in ("all_namespaces", "verbose", "quiet"))
    if everywhere and flags["namespaces"]:
        raise InputError("--all-namespaces", "it contradicts --namespace", "give one of them")
    if sum((verbose, quiet, flags["log_level"] is not None)) > 1:
        raise InputError("--log-level", "--log-level, --verbose and --quiet contradict each other", "give one of them")
    if everywhere:
        flags["namespaces"] = ""
    if verbose or quiet:
        flags["log_level"] = "debug" if verbose else "warning"
    return flags


def _announce(process: str, settings: Common) -> None:
    """Set up the logs and say once what is in force."""
    configure(settings.log_level, settings.log_format)
    get_logger("covey.cli").info("effective settings", process=process, **settings.model_dump(mode="json"))


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
