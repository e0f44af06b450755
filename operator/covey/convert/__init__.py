"""Workloads of other projects as DisaggregatedInferences: the kinds that can be converted, and the one way in.

Pure: a document goes in, a DisaggregatedInference and remarks come out. One module for each kind of source takes the
fields it understands; whatever is left over is remarked on by its path, so that nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from covey.convert import disaggregatedset, dynamo, leaderworkerset, modelserving, podcliqueset, rolebasedgroup
from covey.convert.draft import Draft
from covey.convert.fields import ConversionError, FieldRemark, Fields
from covey.convert.levels import Levels

__all__ = ["KINDS", "ConversionError", "Converted", "FieldRemark", "Levels", "convert"]


@dataclass(frozen=True, slots=True)
class _Source:
    versions: tuple[str, ...]
    convert: Callable[[Fields, Draft], None]


_SOURCES: Final[dict[tuple[str, str], _Source]] = {
    (leaderworkerset.GROUP, "LeaderWorkerSet"): _Source(("v1",), leaderworkerset.convert),
    (disaggregatedset.GROUP, "DisaggregatedSet"): _Source(("v1", "v1alpha1"), disaggregatedset.convert),
    (rolebasedgroup.GROUP, "RoleBasedGroup"): _Source(("v1alpha2",), rolebasedgroup.convert),
    (podcliqueset.GROUP, "PodCliqueSet"): _Source(("v1alpha1",), podcliqueset.convert),
    (modelserving.GROUP, "ModelServing"): _Source(("v1alpha1",), modelserving.convert),
    (dynamo.GROUP, "DynamoGraphDeployment"): _Source(("v1alpha1", "v1beta1"), dynamo.convert),
}

#: API group and kind of everything that can be converted.
KINDS: Final = frozenset(_SOURCES)


@dataclass(frozen=True, slots=True)
class Converted:
    """A DisaggregatedInference, and what of the source it does not say."""

    body: dict[str, Any]
    remarks: tuple[FieldRemark, ...]


def convert(document: Mapping[str, Any], levels: Levels | None = None) -> Converted:
    """Convert one document, of a kind of ``KINDS``.

    Args:
        document: as YAML or JSON has it.
        levels: what is known of the cluster's topology.

    Raises:
        ConversionError: it is of a version that is not known, malformed, or has no sensible counterpart.
    """
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    kind = str(document.get("kind", ""))
    source = _SOURCES[group, kind]
    if version not in source.versions:
        known = " or ".join(f"{group}/{release}" for release in source.versions)
        raise ConversionError("apiVersion", f"is {version} of {kind}, which is not understood", f"give it as {known}")
    fields = Fields(document)
    draft = Draft(levels or Levels())
    source.convert(fields, draft)
    body = draft.finish(fields)
    return Converted(body, tuple(draft.remarks))
