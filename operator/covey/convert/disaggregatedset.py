"""DisaggregatedSet of LeaderWorkerSet (``disaggregatedset.x-k8s.io/v1``): roles as they are, slices are units."""

from __future__ import annotations

from typing import Final

from covey.convert import leaderworkerset as lws
from covey.convert.draft import Draft
from covey.convert.fields import Fields

GROUP: Final = "disaggregatedset.x-k8s.io"
_SCALING: Final = {"Static": "Static", "External": "External"}

#: The source lets every replica of every role start on its own.
NO_GANG: Final = (
    "the source has no minimum over its roles; minReplicas is 1 for each",
    "raise it where one replica cannot serve",
)


def convert(document: Fields, draft: Draft) -> None:
    """Convert a DisaggregatedSet."""
    draft.take_metadata(document)
    spec = document.child("spec")
    draft.spec["replicas"] = spec.number("slices", 1)
    _place(spec.child("placementPolicy"), draft)
    for source in spec.each("roles"):
        _role(source, draft)
    draft.remark("spec.roles", *NO_GANG)


def _place(source: Fields, draft: Draft) -> None:
    """One domain for a slice, and no other slice in it."""
    source.settle("type", "None")
    kind = source.meaning("type", {"ExclusiveSlice": "own", "ExclusiveTopology": "all"})
    key = source.text("topology") if kind else ""
    level = draft.level_of(source.at("topology"), key) if key else None
    if level:
        draft.constrain(draft.spec, level, None)
        draft.spec["spread"] = lws.spread_units(level)
        if kind == "all":
            draft.remark(source.at("type"), *lws.ONLY_OWN)


def _role(source: Fields, draft: Draft) -> None:
    spec = source.child("spec")
    annotations = source.child("metadata").child("annotations")
    level = lws.exclusive_level(annotations, draft)
    role = draft.add_role(
        source.at("name"),
        source.text("name"),
        **lws.counts(spec.number("replicas", 1)),
        topology={"required": level} if level else None,
        **lws.replica(spec, draft).fields(),
    )
    if level:
        what = "a replica lies in one domain of that level, but other pods may lie there too"
        draft.remark(annotations.at(lws.EXCLUSIVE), what)
    lws.behaviour(spec, role, draft)
    lws.rollout(spec, role, draft)
    if mode := source.child("scaling").meaning("mode", _SCALING):
        draft.wish(source.child("scaling").at("mode"), role, "scaling.mode", mode)
