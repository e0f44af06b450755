"""Choices that bring objects which are hard to read, to understand or to store: they may harm nobody but themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from kubernetes.client import ApiException

from localcluster import sentence_of
from soak.choices import choice
from soak.facts import GANG_GATE, GPU, SCHEDULER, Owner, read_resource
from soak.stage import RESOURCES, Spec, Stage
from soak.supervision import OPERATOR
from soak.world import GRACE

Json = dict[str, Any]

#: More levels than Covey reads of a resource, and fewer than the API server takes.
_DEPTH: Final = 2_500
#: So many empty maps are a megabyte.
_MAPS: Final = 350_000
#: Keys that fit into the annotations of one object; each is a field more in ``managedFields``.
_KEYS: Final = 6_000
_MOST: Final = 6
#: Too much of something, invalid, or too large.
_REFUSALS: Final = frozenset({400, 403, 413, 422})
_GROUPS: Final = "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/{}"
_RECORDS: Final = "/apis/apps/v1/namespaces/{}/controllerrevisions"
_POD_GROUP: Final = "scheduling.covey.dev/pod-group"


def _deep() -> Json:
    found: Json = {}
    for _ in range(_DEPTH):
        found = {"a": found}
    return found


def _bring(
    stage: Stage, generator: random.Random, path: str, body: Json, last: Callable[[float], None] = lambda _since: None
) -> None:
    """Create an object that goes after a while; before it does, do one thing more, told since when it was there."""
    name = body["metadata"]["name"]
    try:
        # None where it is there already: a first try that was answered too late has made it.
        stage.api("POST", path, body)
    except ApiException as error:
        if error.status not in _REFUSALS:
            raise
        stage.say(f"{name} is refused: {sentence_of(error)[:120]}")
        return
    stage.hostile.add(name)
    since = stage.quiet.now()

    def end() -> None:
        stage.hostile.discard(name)
        last(since)
        stage.api("DELETE", f"{path}/{name}")

    stage.later(generator.uniform(1, 15), f"take {name} away", end)


def _name(stage: Stage) -> str:
    stage.counter += 1
    return f"hostile-{stage.counter}"


def _owner(stage: Stage, generator: random.Random) -> Owner | None:
    """A resource that the object looks like one of."""
    owners = sorted(stage.specs)
    return generator.choice(owners) if owners and len(stage.hostile) < _MOST else None


_TOO_DEEP: Final = "a template that is too deep"
_TEMPLATES: Final[dict[str, Callable[[], Json]]] = {
    _TOO_DEEP: lambda: {"zzz": _deep()},
    "a megabyte of empty maps": lambda: {"zzz": [{}] * _MAPS},
    "containers of wrong types": lambda: {
        "containers": [{"name": "c", "resources": "none", "env": 7, "ports": {"a": []}}]
    },
    "a pod of wrong types": lambda: {"affinity": ["nowhere"], "tolerations": {"key": 1}, "volumes": "all"},
}


@choice("tenants", 2)
def create_a_resource_that_is_invalid(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    what = generator.choice(sorted(_TEMPLATES))
    container = {"name": "engine", "image": "registry.test/engine:1", "resources": {"limits": {GPU: "1"}}}
    role = {"name": "decode", "template": {"spec": {"containers": [container], **_TEMPLATES[what]()}}}
    body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference", "spec": {"roles": [role]}}
    name = _name(stage)

    def check(since: float) -> None:
        if stage.quiet.now() - since <= GRACE:
            return
        if what == _TOO_DEEP:
            # It cannot be decoded: nobody can say anything on it, so that the log has its name.
            if f'"{name}"' not in stage.process(OPERATOR).log_text(last_run=False):
                stage.problems.append(f"{owner.namespace}/{name} with {what} is not in the log of the operator")
            return
        # As the API server has it: a watch of objects of this size is behind on a machine with other work.
        found = stage.api("GET", f"{RESOURCES.format(owner.namespace)}/{name}")
        conditions = read_resource(found).conditions if found is not None else None
        said = (conditions or {}).get("Admitted")
        if conditions is not None and (said is None or said[0] != "False"):
            stage.problems.append(f"{owner.namespace}/{name} with {what} says nothing but {dict(conditions)}")

    _bring(stage, generator, RESOURCES.format(owner.namespace), body | {"metadata": {"name": name}}, check)
    return f"{owner.namespace}/{name} with {what}"


@choice("tenants", 1)
def break_a_template_and_mend_it(stage: Stage, generator: random.Random) -> str | None:
    """Of a resource that runs: it is kept up as it was, repairs included."""
    owner = _owner(stage, generator)
    if owner is None:
        return None
    number = generator.randrange(len(stage.specs[owner]["roles"]))
    field, value = generator.choice(
        [("resources", "none"), ("env", 7), ("env", ["A=B"]), ("command", {"a": []}), ("ports", 80)]
    )

    def container(spec: Spec) -> Json:
        found: Json = spec["roles"][number]["template"]["spec"]["containers"][0]
        return found

    original, seconds = container(dict(stage.kind(owner).spec)).get(field), generator.uniform(2, 10)
    stage.edit(owner, lambda spec: container(spec).update({field: value}))
    stage.later(seconds, f"mend {owner.name}", lambda: _mend(stage, owner, container, field, original))
    return (
        f"{field} of {owner.namespace}/{owner.name} {stage.specs[owner]['roles'][number]['name']} for {seconds:.1f} s"
    )


def _mend(stage: Stage, owner: Owner, container: Callable[[Spec], Json], field: str, original: object) -> None:
    def change(spec: Spec) -> None:
        container(spec).pop(field, None)
        if original is not None:
            container(spec)[field] = original

    if owner in stage.specs:
        stage.edit(owner, change)


_RECORDED: Final[dict[str, Callable[[], object]]] = {
    "too deep": _deep,
    "empty": dict,
    "a spec of wrong types": lambda: {"spec": {"roles": {"decode": 1}, "replicas": "many"}, "roles": 3},
}


@choice("tenants", 1)
def create_a_record_that_says_nothing(stage: Stage, generator: random.Random) -> str | None:
    """A ControllerRevision with a resource's label."""
    owner = _owner(stage, generator)
    if owner is None:
        return None
    what = generator.choice(sorted(_RECORDED))
    metadata = {"name": _name(stage), "labels": {"covey.dev/inference": owner.name}}
    body = {"metadata": metadata, "revision": 2**40, "data": _RECORDED[what]()}
    _bring(stage, generator, _RECORDS.format(owner.namespace), body)
    return f"{owner.namespace}/{metadata['name']} of {owner.name}, {what}"


@choice("tenants", 1)
def create_strange_groups(stage: Stage, generator: random.Random) -> str | None:
    """Two above each other, one below nobody, below a group of Covey's, or for more pods than there can be."""
    owner = _owner(stage, generator)
    if owner is None:
        return None
    namespace, name = owner.namespace, _name(stage)
    kind = generator.choice(["a ring", "no parent", "a parent of Covey's", "very many", "a template of nobody's"])
    policy, large = {"gang": {"minGroupCount": 1}}, {"gang": {"minCount": 10_000_000}}
    match kind:
        case "a ring":
            pair = (name, f"{name}-b")
            for one, other in (pair, pair[::-1]):
                _group(stage, generator, namespace, "CompositePodGroup", one, policy, parentCompositePodGroupName=other)
            _group(stage, generator, namespace, "PodGroup", f"{name}-c", large, parentCompositePodGroupName=name)
        case "no parent":
            _group(stage, generator, namespace, "PodGroup", name, large, parentCompositePodGroupName="nobody")
        case "a parent of Covey's":
            found = (stage.api("GET", _GROUPS.format(namespace, "compositepodgroups")) or {"items": []})["items"]
            names = sorted({each["metadata"]["name"] for each in found} - stage.hostile)
            if not names:
                return None
            parent = generator.choice(names)
            kind = f"{kind}, {parent}"
            leaf = generator.choice(["PodGroup", "CompositePodGroup"])
            policy = policy if leaf == "CompositePodGroup" else {"gang": {"minCount": 3}}
            _group(stage, generator, namespace, leaf, name, policy, parentCompositePodGroupName=parent)
        case "very many":
            _group(stage, generator, namespace, "PodGroup", name, large)
        case _:
            reference = {"workloadName": "nobody", "templateName": "nothing"}
            _group(stage, generator, namespace, "PodGroup", name, {"gang": {"minCount": 1}}, workloadRef=reference)
    return f"{namespace}/{name}: {kind}"


def _group(
    stage: Stage, generator: random.Random, namespace: str, kind: str, name: str, policy: Json, **spec: Any
) -> None:
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    path = _GROUPS.format(namespace, f"{kind.lower()}s")
    _bring(stage, generator, path, body | {"spec": {"schedulingPolicy": policy, **spec}})


@choice("tenants", 2)
def create_a_pod_that_is_no_member(stage: Stage, generator: random.Random) -> str | None:
    """A pod with a resource's labels and no group, or with a label of a group that it does not belong to."""
    owner = _owner(stage, generator)
    members = [pod for pod in stage.pods() if pod.replica is not None and pod.replica.side.owner == owner]
    if owner is None or not members:
        return None
    labels = dict(generator.choice(members).labels)
    claims = _POD_GROUP in labels and generator.random() < 0.5
    if not claims:
        labels = {key: value for key, value in labels.items() if not key.startswith("scheduling.")}
    container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": {"cpu": "50m"}}}
    body = {
        "metadata": {"name": _name(stage), "labels": labels},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "schedulerName": SCHEDULER,
            "schedulingGates": [{"name": GANG_GATE}] if claims or generator.random() < 0.5 else [],
        },
    }
    _bring(stage, generator, f"/api/v1/namespaces/{owner.namespace}/pods", body)
    return f"{body['metadata']['name']} as of {owner.namespace}/{owner.name}{', in its group' if claims else ''}"


@choice("tenants", 1)
def create_an_object_with_many_fields(stage: Stage, generator: random.Random) -> str | None:
    """The API server notes each annotation in ``managedFields``."""
    owner = _owner(stage, generator)
    if owner is None:
        return None
    annotations = {f"tenants.example/{number}": "" for number in range(_KEYS)}
    metadata = {"name": _name(stage), "labels": {"covey.dev/inference": owner.name}, "annotations": annotations}
    kind = generator.choice(["services", "controllerrevisions", "podgroups"])
    body: Json = {"metadata": metadata}
    if kind == "services":
        path = f"/api/v1/namespaces/{owner.namespace}/services"
        body |= {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    elif kind == "podgroups":
        path = _GROUPS.format(owner.namespace, kind)
        body |= {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
        body |= {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    else:
        path = _RECORDS.format(owner.namespace)
        body |= {"revision": 1, "data": {}}
    _bring(stage, generator, path, body)
    return f"{kind} {owner.namespace}/{metadata['name']}"
