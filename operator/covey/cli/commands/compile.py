"""``covey compile``: what is created for a resource, without creating it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from covey.api.constants import INFERENCE_GROUP
from covey.api.inference import BackendName, DisaggregatedInference
from covey.backends import BACKENDS, Backend, Cluster
from covey.cli import options
from covey.cli.console import open_console
from covey.cli.data import echo_json, echo_names, echo_yaml, full_name
from covey.manifests.documents import read_documents
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.inference import read_inference
from covey.operator.validation import resolve_topology
from covey.planning.facts import ClusterFacts, read_facts

Object = dict[str, Any]


@click.command("compile")
@options.files()
@options.recursive
@click.option(
    "--backend", type=click.Choice([member.value for member in BackendName]), help="Instead of the spec's own."
)
@click.option(
    "--dialect", metavar="VERSION", help="A form of the backend's API, such as v1alpha2. Default: the newest."
)
@options.topology
@click.option("-n", "--namespace", metavar="NS", default="default", help="Of resources that name none.")
@options.output(("yaml", "json", "name", "tree"), "yaml")
@options.no_color
def compile_command(
    files: tuple[str, ...],
    recursive: bool,  # noqa: FBT001 - a flag
    backend: str | None,
    dialect: str | None,
    topologies: tuple[str, ...],
    namespace: str,
    form: str,
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """The objects that a DisaggregatedInference expands to, in creation order."""
    facts = read_facts((), (), topologies)
    objects = [
        body
        for inference in _inferences(files, namespace, recursive=recursive)
        for body in _expand(inference, backend, dialect, facts)
    ]
    if form == "json":
        echo_json({"apiVersion": "v1", "kind": "List", "items": objects})
    elif form == "yaml":
        echo_yaml(objects)
    elif form == "name":
        echo_names(full_name(body["apiVersion"], body["kind"], body["metadata"]["name"]) for body in objects)
    else:
        from covey.cli.render.objects import print_objects  # noqa: PLC0415 - needs rich, which may be missing

        print_objects(objects, open_console(no_color=no_color))


def _inferences(files: tuple[str, ...], namespace: str, *, recursive: bool) -> list[DisaggregatedInference]:
    inferences: list[DisaggregatedInference] = []
    skipped: list[str] = []
    for document in read_documents(files, recursive=recursive):
        if (document.group, document.kind) == (INFERENCE_GROUP, "DisaggregatedInference"):
            inferences.append(read_inference(document, namespace))
        else:
            skipped.append(f"warning: {document.place}: skipped {document.kind} {document.name}")
    if not inferences:
        raise InputError(ManifestPath(files[-1]), "holds no DisaggregatedInference", "give one")
    for warning in skipped:
        click.echo(warning, err=True)
    return inferences


def _expand(
    inference: DisaggregatedInference, backend: str | None, dialect: str | None, facts: ClusterFacts
) -> Iterable[Object]:
    if backend is not None:
        spec = inference.spec.model_copy(update={"backend": BackendName(backend)})
        inference = inference.model_copy(update={"spec": spec})
    chosen = _backend(inference.spec.effective_backend, dialect)
    levels = None
    if facts.topologies:
        _, levels, problem = resolve_topology(inference.spec, facts.topologies)
        if problem is not None:
            raise InputError(inference.metadata.name, problem.message, "give another ClusterTopology with --topology")
    # What a cluster serves and keeps is not known here: one that does everything is assumed.
    able = Cluster(kept=frozenset(probe.name for probe in chosen.probes()))
    refused = chosen.refusals(inference.spec, levels, able)
    if refused:
        remedy = "choose another --backend" + (
            "" if facts.topologies else ", or give the ClusterTopology with --topology"
        )
        raise InputError(inference.metadata.name, "; ".join(refused), remedy)
    return chosen.compile(inference, levels=levels).objects()


def _backend(name: BackendName, dialect: str | None) -> Backend:
    known = [backend for backend in BACKENDS if backend.name is name]
    if not known:
        raise InputError("--backend", f"{name} is not supported yet", "use Extender or Auto")
    backend = next((backend for backend in known if dialect in (None, backend.dialect)), None)
    if backend is None:
        choices = ", ".join(backend.dialect for backend in known if backend.dialect)
        raise InputError(
            "--dialect", f"{name} has no {dialect}", f"use one of {choices}" if choices else "leave it out"
        )
    return backend
