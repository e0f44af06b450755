"""``covey compile``: what is created for a resource, without creating it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from covey.api.constants import INFERENCE_GROUP
from covey.api.inference import Backend, DisaggregatedInference
from covey.backends import backend_of
from covey.cli import options
from covey.cli.data import echo_json, echo_names, echo_yaml, full_name
from covey.cli.documents import read_documents
from covey.cli.errors import InputError, Place
from covey.cli.inference import read_inference

Object = dict[str, Any]


@click.command("compile")
@options.files()
@options.recursive
@click.option("--backend", type=click.Choice([each.value for each in Backend]), help="Instead of the spec's own.")
@click.option("-n", "--namespace", metavar="NS", default="default", help="Of resources that name none.")
@options.output(("yaml", "json", "name", "tree"), "yaml")
@options.no_color
def compile_command(
    files: tuple[str, ...],
    recursive: bool,  # noqa: FBT001 - a flag
    backend: str | None,
    namespace: str,
    form: str,
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """The objects that a DisaggregatedInference expands to, in creation order."""
    objects = [
        body
        for inference in _inferences(files, namespace, recursive=recursive)
        for body in _expanded(inference, backend)
    ]
    if form == "json":
        echo_json({"apiVersion": "v1", "kind": "List", "items": objects})
    elif form == "yaml":
        echo_yaml(objects)
    elif form == "name":
        echo_names(full_name(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in objects)
    else:
        from covey.cli.console import open_console  # noqa: PLC0415 - rich, only where it is drawn with
        from covey.cli.render.objects import print_objects  # noqa: PLC0415 - the same

        print_objects(objects, open_console(no_color=no_color))


def _inferences(files: tuple[str, ...], namespace: str, *, recursive: bool) -> list[DisaggregatedInference]:
    found: list[DisaggregatedInference] = []
    skipped: list[str] = []
    for document in read_documents(files, recursive=recursive):
        if (document.group, document.kind) == (INFERENCE_GROUP, "DisaggregatedInference"):
            found.append(read_inference(document, namespace))
        else:
            skipped.append(f"warning: {document.place}: skipped {document.kind} {document.name}")
    if not found:
        raise InputError(Place(files[-1]), "holds no DisaggregatedInference", "give one")
    for warning in skipped:
        click.echo(warning, err=True)
    return found


def _expanded(inference: DisaggregatedInference, backend: str | None) -> Iterable[Object]:
    if backend is not None:
        spec = inference.spec.model_copy(update={"backend": Backend(backend)})
        inference = inference.model_copy(update={"spec": spec})
    try:
        chosen = backend_of(inference)
    except KeyError:
        name = inference.spec.effective_backend
        raise InputError("--backend", f"{name} is not supported yet", "use Extender or Auto") from None
    return chosen.compile(inference).objects()
