"""Fields of a group whose change the API server would refuse: of what Covey writes, only ``minCount`` may change.

Types of ``scheduling.k8s.io/v1beta1`` and ``v1alpha3`` (Kubernetes 1.37); the whole policy of a CompositePodGroup is
fixed, and templates can neither be added nor removed. Before 1.37 nothing of a group may change.

Only what Covey wrote counts: whatever the API server fills in, or a webhook adds or changes, would be the same in a
group that is created again. So an object has a digest of what was written (``names.ANNOTATION_FIXED``).
``managedFields`` cannot say it: what is filled in while an object is created counts as written by its creator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from covey.api import constants as names
from covey.backends.seam import Owned
from covey.compile.identity import short_hash

MUTABLE: Final = frozenset({"minCount"})
#: ``CompositeGangSchedulingPolicy`` of ``v1beta1``: may be changed in a group, and in its template.
MUTABLE_1_38: Final = MUTABLE | {"minGroupCount"}
#: Every key that Covey has ever written in a spec of these kinds but ``priorityClassName``, which no resource may
#: change: what objects of releases without the digest are compared by.
WRITTEN: Final = frozenset(
    {
        "all",
        "apiGroup",
        "basic",
        "compositePodGroupTemplates",
        "controllerRef",
        "disruptionMode",
        "gang",
        "key",
        "kind",
        "minCount",
        "minGroupCount",
        "name",
        "parentCompositePodGroupName",
        "podGroupTemplateName",
        "podGroupTemplateRef",
        "podGroupTemplates",
        "podGroups",
        "policy",
        "schedulingConstraints",
        "schedulingPolicy",
        "single",
        "templateName",
        "topology",
        "workload",
        "workloadName",
        "workloadRef",
    }
)


def is_other(stored: Owned, wanted: Mapping[str, Any], mutable: frozenset[str] = MUTABLE) -> bool:
    """Tell whether fields that nobody may change differ from what Covey would write into them now.

    Args:
        stored: the object.
        wanted: its spec.
        mutable: keys that may be changed.
    """
    if stored.metadata.annotation(names.ANNOTATION_FIXED) == digest(wanted, mutable):
        return False
    return bool(_immutable_part(stored.spec, mutable) != _immutable_part(wanted, mutable))


def digest(wanted: Mapping[str, Any], mutable: frozenset[str] = MUTABLE) -> str:
    """A digest of the fields of a spec that nobody may change."""
    return short_hash(json.dumps(_immutable_part(wanted, mutable), sort_keys=True, separators=(",", ":")), 12)


def _immutable_part(value: Any, mutable: frozenset[str]) -> Any:
    """Return the part of a value that counts; a null is the same as nothing, and named items have no order."""
    if isinstance(value, Mapping):
        kept = ((key, item) for key, item in value.items() if key in WRITTEN and key not in mutable)
        return {key: _immutable_part(item, mutable) for key, item in kept if item is not None}
    if isinstance(value, list | tuple):
        items = [_immutable_part(item, mutable) for item in value]
        return sorted(items, key=_name) if all(isinstance(item, dict) and "name" in item for item in items) else items
    return value


def _name(item: Mapping[str, Any]) -> str:
    return str(item["name"])
