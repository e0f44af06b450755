"""The pods of Dynamo's components: v1beta1 has a pod template, v1alpha1 spells one out in fields of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from covey.convert.draft import Draft, Object
from covey.convert.fields import Fields
from covey.convert.templates import Template, add_labels, items, name_of, plain_spec, template_of

_MAIN: Final = "main"


_GPU: Final = "nvidia.com/gpu"


_SHARED_MEMORY: Final = "shared-memory"


#: Fields of v1alpha1 that are fields of the container of the same name.
_OF_CONTAINER: Final = ("livenessProbe", "readinessProbe")


@dataclass(slots=True)
class Shared:
    """Parts that all components of a graph share: variables, labels and annotations, claims."""

    variables: Sequence[Fields]
    metadata: Mapping[str, Mapping[str, str]]
    claims: Sequence[Fields]
    env: Sequence[Object] = ()

    def settle(self, draft: Draft) -> None:
        """Read the variables, and say which claims have to be made by hand."""
        self.env = [_whole(variable) for variable in self.variables]
        for claim in self.claims:
            claim.take("name")
            claim.settle("create", False)  # noqa: FBT003 - a value of the field
            if claim.take("create"):
                for key in ("size", "storageClass", "volumeAccessMode"):
                    claim.take(key)
                draft.remark(claim.path, "is not created by Covey", "create the PersistentVolumeClaim yourself")

    def on(self, template: Template) -> Template:
        """A template with them; its own win."""
        for key, values in self.metadata.items():
            template = add_labels(template, key, values)
        return _main(template, env=self.env)


def pod_template(source: Fields, shared: Shared, draft: Draft) -> Template:
    """The template of a component of v1beta1."""
    template = shared.on(template_of(source.child("podTemplate"), draft))
    cache = source.child("compilationCache")
    claim = cache.text("pvcName")
    if claim and (path := cache.text("mountPath")):
        template = _mount(template, _claim_volume(claim), path)
    elif claim:
        what = "has a path that Dynamo chooses by framework; left out"
        draft.remark(cache.path, what, "set its mountPath")
    size = source.take("sharedMemorySize")
    return _with_memory(template, size) if size is not None and str(size) != "0" else template


def service_template(source: Fields, shared: Shared, draft: Draft) -> Template:
    """The template of a service of v1alpha1."""
    extra = source.child("extraPodSpec")
    main = _container(source, extra.mapping("mainContainer"))
    given = {key: extra.take(key) for key in extra.rest()}
    others = [container for container in items(given, "containers") if name_of(container) != _MAIN]
    template: Template = {"spec": {**plain_spec(given, extra.path, draft), "containers": [main, *others]}}
    more = source.child("extraPodMetadata")
    for key in ("labels", "annotations"):
        template = add_labels(add_labels(template, key, more.strings(key)), key, source.strings(key))
    template = shared.on(template)
    for mount in source.each("volumeMounts"):
        template = _service_mount(mount, template, draft)
    memory = source.child("sharedMemory")
    memory.settle("disabled", False, True)  # noqa: FBT003 - both values mean nothing without a size
    size = memory.take("size")
    return _with_memory(template, size) if size is not None else template


def _container(source: Fields, given: Mapping[str, Any]) -> Object:
    """The container main, from its own fields and those of the service."""
    container: Object = {"name": _MAIN, **given}
    if resources := _resources(source.child("resources")):
        container["resources"] = _both(container.get("resources"), resources)
    if env := [_whole(variable) for variable in source.each("envs")]:
        container["env"] = _join_variables(items(container, "env"), env)
    if secret := source.text("envFromSecret"):
        container["envFrom"] = [*items(container, "envFrom"), {"secretRef": {"name": secret}}]
    for key in _OF_CONTAINER:
        if key in source:
            container[key] = source.take(key)
    return container


def _resources(source: Fields) -> Object:
    """``gpu`` and ``custom`` under the names that Kubernetes has for them."""
    resources: Object = {}
    for key in ("requests", "limits"):
        given = source.child(key)
        amounts = {name: given.text(name) for name in ("cpu", "memory") if name in given}
        device = given.text("gpuType") or _GPU
        if gpus := given.text("gpu"):
            amounts[device] = gpus
        amounts |= given.strings("custom")
        if amounts:
            resources[key] = amounts
    if "claims" in source:
        resources["claims"] = source.take("claims")
    return resources


def _both(own: Any, more: Any) -> Any:
    """Two objects as one; where both say something, the second counts."""
    if not isinstance(own, Mapping) or not isinstance(more, Mapping):
        return more
    return {**own, **{key: _both(own.get(key), value) for key, value in more.items()}}


def _service_mount(mount: Fields, template: Template, draft: Draft) -> Template:
    name, path = mount.text("name"), mount.text("mountPoint")
    if mount.flag("useAsCompilationCache"):
        draft.remark(mount.at("useAsCompilationCache"), "adds variables by framework in Dynamo; left out")
    if not path:
        draft.remark(mount.path, "has a path that Dynamo chooses by framework; left out", "set its mountPoint")
        return template
    return _mount(template, _claim_volume(name), path)


def _claim_volume(claim: str) -> Object:
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


def _with_memory(template: Template, size: Any) -> Template:
    volume = {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return _mount(template, volume, "/dev/shm")  # noqa: S108 - where shared memory is mounted


def _mount(template: Template, volume: Object, path: str) -> Template:
    """A template with a volume, mounted in the container main."""
    volumes = items(template["spec"], "volumes")
    if all(name_of(other) != volume["name"] for other in volumes):
        volumes = [*volumes, volume]
    template = {**template, "spec": {**template["spec"], "volumes": volumes}}
    return _main(template, mounts=[{"name": volume["name"], "mountPath": path}])


def _main(template: Template, *, env: Sequence[Object] = (), mounts: Sequence[Object] = ()) -> Template:
    """A template whose container main has more variables, in front of its own, and more mounts."""

    def change(container: Any) -> Any:
        if name_of(container) != _MAIN:
            return container
        changed = dict(container)
        if env:
            changed["env"] = _join_variables(env, items(container, "env"))
        if mounts:
            changed["volumeMounts"] = [*items(container, "volumeMounts"), *mounts]
        return changed

    containers = [change(container) for container in items(template["spec"], "containers")]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _join_variables(first: Sequence[Any], then: Sequence[Any]) -> list[Any]:
    """Two lists of variables; of two of one name the later one counts."""
    names = set(map(name_of, then))
    return [*(variable for variable in first if name_of(variable) not in names), *then]


def _whole(source: Fields) -> Object:
    return {key: source.take(key) for key in source.rest()}
