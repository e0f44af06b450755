"""Container restarts of a pod that count as failures.

Main containers count. Init containers, and among them sidecars (``restartPolicy: Always``), do not: they are apart from
the process group of a replica, and what runs next to it may restart as it likes. A template may name further containers
that do not count (``names.ANNOTATION_RESTART_IGNORED``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from covey.api import constants as names
from covey.api import core
from covey.api.annotated import read_json


def counts(pod: core.Pod) -> dict[str, int]:
    """Restarts of each main container, by its name; those that never restarted are left out."""
    return {each.name: each.restart_count for each in pod.status.container_statuses or () if each.restart_count > 0}


def restarted(pod: core.Pod) -> bool:
    """Tell whether a container that counts has restarted more often than is known to be no failure."""
    found = counts(pod)
    if not found:
        return False
    ignored = {each.strip() for each in (pod.metadata.annotation(names.ANNOTATION_RESTART_IGNORED) or "").split(",")}
    known = baseline(pod)
    return any(count > known.get(name, 0) for name, count in found.items() if name not in ignored)


def baseline(pod: core.Pod) -> dict[str, int]:
    """Restarts by container that are no failures: before the replica was first Ready, or on purpose."""
    found = read_json(pod.metadata.annotation(names.ANNOTATION_RESTART_BASELINE))
    if not isinstance(found, dict):
        return {}
    return {name: count for name, count in found.items() if isinstance(count, int)}


def written(found: Mapping[str, int]) -> str:
    """The annotation of a baseline."""
    return json.dumps(dict(found), sort_keys=True, separators=(",", ":"))
