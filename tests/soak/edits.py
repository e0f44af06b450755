"""Choices that change specs."""

from __future__ import annotations

import random

from kubernetes.client import ApiException

from soak.choices import choice
from soak.facts import Owner
from soak.stage import Spec, Stage


def _owner(stage: Stage, generator: random.Random) -> Owner | None:
    owners = sorted(stage.specs)
    return generator.choice(owners) if owners else None


def _role(spec: Spec, generator: random.Random) -> Spec:
    return generator.choice(spec["roles"])


def _part(spec: Spec, name: str) -> Spec:
    return next(role for role in spec["roles"] if role["name"] == name)


def _image(role: Spec) -> str:
    return str(role["template"]["spec"]["containers"][0]["image"])


def _set_image(role: Spec, number: int) -> None:
    role["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{number}"


@choice("edits", 10)
def scale_a_role(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    role = _role(stage.specs[owner], generator)["name"]
    count = generator.randint(*stage.kind(owner).roles[role])

    def change(spec: Spec) -> None:
        part = _part(spec, role)
        part["replicas"] = count
        if part.get("minReplicas", 0) > count:
            part["minReplicas"] = count

    stage.edit(owner, change)
    return f"{owner.namespace}/{owner.name} {role} -> {count}"


@choice("edits", 5)
def scale_units(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    count = generator.randint(*stage.kind(owner).units)
    stage.edit(owner, lambda spec: spec.update(replicas=count))
    return f"{owner.namespace}/{owner.name} -> {count} units"


@choice("edits", 1)
def scale_to_zero_and_back(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None or not stage.specs[owner]["replicas"]:
        return None
    before, seconds = stage.specs[owner]["replicas"], generator.uniform(0.5, 8)
    stage.edit(owner, lambda spec: spec.update(replicas=0))
    stage.later(
        seconds,
        f"scale {owner.name} back",
        lambda: owner in stage.specs and stage.edit(owner, lambda spec: spec.update(replicas=before)),
    )
    return f"{owner.namespace}/{owner.name} -> 0 for {seconds:.1f} s"


@choice("edits", 4)
def scale_from_outside(stage: Stage, generator: random.Random) -> str | None:
    """As an autoscaler does, which knows neither units nor minimums and may be refused."""
    found = [
        (owner, role["name"])
        for owner, spec in sorted(stage.specs.items())
        for role in spec["roles"]
        if role.get("scaling", {}).get("mode") == "External"
    ]
    if not found:
        return None
    owner, role = generator.choice(found)
    total = generator.randint(1, 6)
    stage.stir(owner)
    path = f"/apis/inference.covey.dev/v1alpha1/namespaces/{owner.namespace}/rolescalers/{owner.name}-{role}/scale"
    try:
        done = stage.api("PATCH", path, {"spec": {"replicas": total}})
    except ApiException as error:
        if error.status != 422:
            raise
        return f"{owner.namespace}/{owner.name} {role} -> {total}, which was refused"
    return f"{owner.namespace}/{owner.name} {role} -> {total}{'' if done else ', but there is no scaler'}"


@choice("edits", 1)
def change_a_minimum(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    role = _role(stage.specs[owner], generator)
    count = generator.randint(1, max(1, role["replicas"]))
    if role.get("minReplicas") == 0 or count > role["replicas"]:
        return None
    stage.edit(owner, lambda spec: _part(spec, role["name"]).update(minReplicas=count))
    return f"{owner.namespace}/{owner.name} {role['name']} minimum -> {count}"


@choice("edits", 6)
def edit_one_template(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    role, number = _role(stage.specs[owner], generator)["name"], generator.randint(1, 9)
    stage.edit(owner, lambda spec: _set_image(_part(spec, role), number))
    return f"{owner.namespace}/{owner.name} {role} -> image {number}"


@choice("edits", 4)
def edit_all_templates(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    number = generator.randint(1, 9)
    stage.edit(owner, lambda spec: [_set_image(role, number) for role in spec["roles"]])
    return f"{owner.namespace}/{owner.name} all -> image {number}"


@choice("edits", 4)
def edit_and_take_it_back(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    number, seconds = generator.randint(1, 9), generator.uniform(0.1, 6)
    before = {role["name"]: _image(role) for role in stage.specs[owner]["roles"]}

    def back(spec: Spec) -> None:
        for role in spec["roles"]:
            role["template"]["spec"]["containers"][0]["image"] = before[role["name"]]

    stage.edit(owner, lambda spec: [_set_image(role, number) for role in spec["roles"]])
    stage.later(seconds, f"take {owner.name} back", lambda: owner in stage.specs and stage.edit(owner, back))
    return f"{owner.namespace}/{owner.name} all -> image {number} for {seconds:.1f} s"


@choice("edits", 1)
def change_a_size(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    several = [role for role in stage.specs[owner]["roles"] if role.get("size", 1) > 1]
    if not several:
        return None
    role, size = generator.choice(several)["name"], generator.randint(2, 4)
    stage.edit(owner, lambda spec: _part(spec, role).update(size=size))
    return f"{owner.namespace}/{owner.name} {role} size -> {size}"


@choice("edits", 2)
def pause_a_rollout(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    seconds = generator.uniform(1, 15)
    stage.edit(owner, lambda spec: spec.update(rollout={"paused": True}))
    stage.later(
        seconds,
        f"go on with {owner.name}",
        lambda: owner in stage.specs and stage.edit(owner, lambda spec: spec.pop("rollout", None)),
    )
    return f"{owner.namespace}/{owner.name} for {seconds:.1f} s"


@choice("edits", 2)
def set_a_partition(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    role, seconds = _role(stage.specs[owner], generator)["name"], generator.uniform(3, 20)

    def change(spec: Spec, partition: int | None) -> None:
        part = _part(spec, role)
        part["update"] = {key: value for key, value in part.get("update", {}).items() if key != "partition"}
        if partition is not None:
            part["update"]["partition"] = partition
        elif not part["update"]:
            del part["update"]

    count = generator.randint(1, 2)
    stage.edit(owner, lambda spec: change(spec, count))
    stage.later(
        seconds,
        f"take the partition of {owner.name} away",
        lambda: owner in stage.specs and stage.edit(owner, lambda spec: change(spec, None)),
    )
    return f"{owner.namespace}/{owner.name} {role} {count} for {seconds:.1f} s"


@choice("edits", 1)
def suspend(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    seconds = generator.uniform(0.5, 10)
    stage.edit(owner, lambda spec: spec.update(suspend=True))
    stage.later(
        seconds,
        f"resume {owner.name}",
        lambda: owner in stage.specs and stage.edit(owner, lambda spec: spec.update(suspend=False)),
    )
    return f"{owner.namespace}/{owner.name} for {seconds:.1f} s"


@choice("edits", 1)
def delete_and_create_a_resource(stage: Stage, generator: random.Random) -> str | None:
    owner = _owner(stage, generator)
    if owner is None:
        return None
    seconds = generator.uniform(0.0, 4)
    stage.delete(owner)
    kind = stage.kind(owner)
    stage.later(seconds, f"create {owner.name}", lambda: owner in stage.specs or stage.create(kind))
    return f"{owner.namespace}/{owner.name}, again after {seconds:.1f} s"


@choice("edits", 1)
def break_a_spec_and_mend_it(stage: Stage, generator: random.Random) -> str | None:
    """A level that does not exist, which nothing may come of."""
    owner = _owner(stage, generator)
    broken = {"preferred": "nowhere"}
    if owner is None or stage.specs[owner].get("topology") == broken:
        return None
    before, seconds = dict(stage.specs[owner].get("topology") or {}), generator.uniform(0.5, 8)
    stage.edit(owner, lambda spec: spec.update(topology=broken))
    stage.later(
        seconds,
        f"mend {owner.name}",
        lambda: (
            owner in stage.specs
            and stage.edit(owner, lambda spec: spec.update(topology={"required": None, "preferred": None} | before))
        ),
    )
    return f"{owner.namespace}/{owner.name} for {seconds:.1f} s"
