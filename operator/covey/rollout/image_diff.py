"""Changes of images alone, which a running pod can be given.

Of a pod that exists the API server lets the images of containers be changed, and the kubelet restarts those containers
in their place. Init containers are not run again for it (Kubernetes 1.20), and sidecars only from 1.34 on, so a change
of theirs takes a new pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from covey.compile.revision import RoleRevision, Template

_ANY: Final = {"image": ""}


def images_of(revision: RoleRevision, index: int) -> Mapping[str, str]:
    """The image of each container of the pod with this index, init containers left out."""
    return _images(revision.template_of(index))


def differ_in_images_only(one: RoleRevision, other: RoleRevision) -> bool:
    """Tell whether pods of one revision become pods of the other by other images, all pods of a replica alike.

    Where a leader has a template of its own, either both templates change or the replica is a single pod: processes
    of which only some start anew would lose each other.
    """
    if one.gathered != other.gathered or not _bare(one).is_same(_bare(other)):
        return False
    indices = range(min(one.size, 2))
    changed = [images_of(one, index) != images_of(other, index) for index in indices]
    return all(changed) and all(_pulled_alike(one.template_of(index), other.template_of(index)) for index in indices)


def _images(template: Template) -> Mapping[str, str]:
    return {container["name"]: container.get("image") or "" for container in template["spec"]["containers"]}


def _bare(revision: RoleRevision) -> RoleRevision:
    templates = {key: revision.rolled.get(key) for key in ("template", "leaderTemplate")}
    return replace(
        revision, rolled={**revision.rolled, **{key: _without_images(part) for key, part in templates.items() if part}}
    )


def _without_images(template: Template) -> dict[str, Any]:
    spec = template["spec"]
    return {**template, "spec": {**spec, "containers": [{**container, **_ANY} for container in spec["containers"]]}}


def _pulled_alike(one: Template, other: Template) -> bool:
    """The default ``imagePullPolicy`` goes by the tag and cannot be changed in a pod."""
    pairs = zip(one["spec"]["containers"], other["spec"]["containers"], strict=True)
    return all(
        before.get("imagePullPolicy") or _is_latest(before.get("image")) == _is_latest(after.get("image"))
        for before, after in pairs
    )


def _is_latest(image: str | None) -> bool:
    """``latest`` by name or for want of a tag (``parsers.ParseImageName`` of the kubelet)."""
    if not image or "@" in image:
        return False
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return not colon or tag == "latest"
