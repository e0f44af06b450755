"""``covey convert``: workloads of other projects as DisaggregatedInferences, without creating anything."""

from __future__ import annotations

from typing import Any

import click

from covey.cli import options
from covey.cli.data import echo_json, echo_yaml
from covey.manifests.conversion import SOURCES, convert_document, known_levels
from covey.manifests.documents import read_documents
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.inference import read_inference
from covey.planning.facts import read_facts

Object = dict[str, Any]


@click.command("convert")
@options.files()
@options.recursive
@options.topology
@click.option("-n", "--namespace", metavar="NS", help="Of resources that name none; otherwise none is written.")
@options.output(("yaml", "json"), "yaml")
def convert_command(
    files: tuple[str, ...],
    recursive: bool,  # noqa: FBT001 - a flag
    topologies: tuple[str, ...],
    namespace: str | None,
    form: str,
) -> None:
    """Workloads of other projects as DisaggregatedInferences.

    Understands LeaderWorkerSet, DisaggregatedSet, RoleBasedGroup, PodCliqueSet (Grove), ModelServing (Kthena) and
    DynamoGraphDeployment. What has no counterpart is named on standard error, field by field.
    """
    facts = read_facts((), (), topologies, recursive=recursive)
    levels = known_levels(facts.topologies)
    objects: list[Object] = []
    warnings = list(facts.warnings)
    for document in read_documents(files, recursive=recursive):
        converted, remarks = convert_document(document, levels)
        if converted is document:
            warnings.append(f"{document.place}: skipped {document.kind} {document.name}")
            continue
        read_inference(converted, namespace or "default")
        warnings += remarks
        objects.append(_in(converted.body, namespace))
    if not objects:
        raise InputError(ManifestPath(files[-1]), "holds nothing that can be converted", f"give one of {SOURCES}")
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if form == "json":
        echo_json({"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        echo_yaml(objects)


def _in(body: Object, namespace: str | None) -> Object:
    """The object with a namespace, if one is named here or there."""
    metadata = body["metadata"]
    return (
        {**body, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}} if namespace else body
    )
