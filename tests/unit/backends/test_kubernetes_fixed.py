"""Fields that nobody may change are compared as Covey wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.inference import BackendName
from covey.backends import BACKENDS, Backend, Owned
from covey.backends.kubernetes.fixed import WRITTEN, digest, is_other

NATIVE = [each for each in BACKENDS if each.name is BackendName.KUBERNETES]
LEVELS = {"block": ("x/block",), "rack": ("x/rack",)}
WANTED = {"disruptionMode": {"all": {}}, "schedulingPolicy": {"gang": {"minCount": 1}}}


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from keys(item)


@pytest.mark.parametrize("backend", NATIVE, ids=lambda each: each.dialect)
def test_every_field_that_is_written_is_compared(backend: Backend) -> None:
    roles = (
        role("prefill", size=2, topology={"required": "rack"}),
        role("decode", replicas=2),
        role("router", minReplicas=0),
    )
    wanted = inference(*roles, topology={"required": "block"}, priorityClassName="high", backend="Kubernetes")
    kinds = {kind.kind for kind in backend.kinds()}
    bodies = [body for body in backend.compile(wanted, levels=LEVELS).objects() if body["kind"] in kinds]
    assert bodies
    assert set().union(*(keys(body["spec"]) for body in bodies)) - WRITTEN <= {"priorityClassName"}
    assert all(backend.fixed_fields(body) for body in bodies)


def owned(spec: dict[str, Any], fixed: str | None = None) -> Owned:
    annotations = {names.ANNOTATION_FIXED: fixed} if fixed is not None else None
    return msgspec.convert({"metadata": {"name": "x", "annotations": annotations}, "spec": spec}, Owned)


def test_what_covey_no_longer_writes_counts() -> None:
    before = {**WANTED, "schedulingConstraints": {"topology": [{"key": "x/zone"}]}}
    assert is_other(owned(before, digest(before)), WANTED)
    assert is_other(owned(WANTED, digest(WANTED)), before)
    assert not is_other(owned(before, digest(before)), {**before, "schedulingPolicy": {"gang": {"minCount": 9}}})
