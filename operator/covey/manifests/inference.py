"""Checking a DisaggregatedInference without an API server: what kubectl and the CRD's rules would refuse.

The models hold types and bounds, ``api.rules`` the CRD's rules. Unknown fields are refused as by kubectl's strict
validation, and templates are looked at as a dry run of their pods would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from covey.api import core
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.model import DNS_LABEL
from covey.api.rules import Broken, broken_rules
from covey.manifests.documents import Document, wrong_field
from covey.manifests.documents import convert as convert_plain
from covey.manifests.errors import InputError, ManifestProblem
from covey.manifests.strict import validate
from covey.operator.model.template_faults import find_template_faults, find_unquoted

_LONGEST_NAME: Final = 63
#: A name without dots, as the CRD's rule has it: it is part of host names.
_NAME: Final = re.compile(DNS_LABEL)


def read_inference(document: Document, namespace: str) -> DisaggregatedInference:
    """Validate a document.

    Args:
        document: of kind DisaggregatedInference.
        namespace: given to a resource that names none.

    Raises:
        InputError: with one line for everything that is wrong.
    """
    metadata = dict(document.body.get("metadata") or {})
    metadata["namespace"] = metadata.get("namespace") or namespace
    inference = validate(DisaggregatedInference, document, {**document.body, "metadata": metadata})
    problems = [
        ManifestProblem(document.place.at(path), what, remedy)
        for path, what, remedy in (
            *_name_rules(inference.metadata.name),
            *broken_rules(inference.spec),
            *_templates(inference.spec),
        )
    ]
    if problems:
        raise InputError.of(problems)
    return inference


def _name_rules(name: str) -> Iterator[Broken]:
    if not name:
        yield "metadata.name", "is missing", "give the resource a name"
    elif len(name) > _LONGEST_NAME:
        yield "metadata.name", f"has {len(name)} characters", f"use at most {_LONGEST_NAME}"
    elif not _NAME.fullmatch(name):
        remedy = "use lower-case letters, digits and -, with a letter or digit at both ends"
        yield "metadata.name", f"{name!r} is no name for it", remedy


def _templates(spec: DisaggregatedInferenceSpec) -> Iterator[Broken]:
    """The faults that a strict dry run of the pods would find."""
    for number, role in enumerate(spec.roles):
        for key, template in (("template", role.template), ("leaderTemplate", role.leader_template)):
            if template is not None:
                yield from _template(f"spec.roles[{number}].{key}", template)


def _template(path: str, template: Mapping[str, Any]) -> Iterator[Broken]:
    if unquoted := [*find_unquoted(template)]:
        yield from ((f"{path}.{field}", what, instead) for field, what, instead in unquoted)
        return
    spec = template.get("spec")
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        return
    try:
        convert_plain({"metadata": template.get("metadata") or {}, "spec": spec}, core.Pod)
    except msgspec.ValidationError as error:
        field, what = wrong_field(error)
        yield f"{path}.{field}", what, "correct it"
        return
    for field, what, instead in find_template_faults(spec):
        yield f"{path}.spec.{field}", what, instead
