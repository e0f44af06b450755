"""Which changes of a template a running pod can be given."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role, template
from covey.api.inference import DisaggregatedInference
from covey.compile.revision import Revision, RoleRevision
from covey.rollout.image_diff import differ_in_images_only, images_of


def container(image: str = "engine:1", **fields: Any) -> dict[str, Any]:
    return {"name": "engine", "image": image, **fields}


def revision(template: dict[str, Any], **fields: Any) -> RoleRevision:
    found: DisaggregatedInference = inference(role("decode", template=template, **fields))
    return Revision.of(found.spec).roles["decode"]


BASE = template(container())
METRICS = {"name": "metrics", "image": "metrics:1"}


def with_init(engine: str, **fields: Any) -> dict[str, Any]:
    """A template with an init container, or a sidecar."""
    return template(container(engine), initContainers=[{**METRICS, **fields}])


LABELLED = {"metadata": {"labels": {"a": "b"}}, **template(container("engine:2"))}
ALWAYS = {"imagePullPolicy": "Always"}
SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("former", "wanted", "in_place"),
    [
        (BASE, template(container("engine:2")), True),
        (BASE, template(container("mirror.test:5000/engine:1")), True),
        (BASE, template(container("engine@sha256:00")), True),
        (template(container(), METRICS), template(container(), {**METRICS, "image": "metrics:2"}), True),
        (
            template(container(), initContainers=[METRICS]),
            template(container("engine:2"), initContainers=[METRICS]),
            True,
        ),
        # What is pulled by its tag alone may stay the same image.
        (BASE, template(container("engine:latest")), False),
        (BASE, template(container("engine")), False),
        (BASE, template(container("engine:latest", imagePullPolicy=None)), False),
        (template(container("engine")), template(container("other:latest")), True),
        (template(container(**ALWAYS)), template(container("engine:latest", **ALWAYS)), True),
        # Whatever else changes takes new pods.
        (BASE, BASE, False),
        (BASE, template(container("engine:2", env=[{"name": "A", "value": "b"}])), False),
        (BASE, template(container("engine:2"), METRICS), False),
        (BASE, template({**container("engine:2"), "name": "other"}), False),
        (BASE, template(container("engine:2"), nodeSelector={"new": "yes"}), False),
        (BASE, LABELLED, False),
        # Init containers do not run again.
        (with_init("engine:1"), with_init("engine:2", image="metrics:2"), False),
        (with_init("engine:1", **SIDECAR), with_init("engine:2", image="metrics:2", **SIDECAR), False),
    ],
)
def test_images_of_containers_are_changed_in_place_and_nothing_else(
    former: dict[str, Any], wanted: dict[str, Any], *, in_place: bool
) -> None:
    assert differ_in_images_only(revision(former), revision(wanted)) is in_place


def test_size_and_shared_fields_are_no_images() -> None:
    new = template(container("engine:2"))
    assert not differ_in_images_only(revision(BASE, size=2), revision(new, size=3))
    without = inference(role("decode", template=new), compat={"lws": False})
    assert not differ_in_images_only(revision(BASE), Revision.of(without.spec).roles["decode"])


def test_all_pods_of_a_replica_or_none() -> None:
    """Workers would lose a leader that starts anew alone."""
    old, new = BASE, template(container("engine:2"))
    former = revision(old, size=2, leaderTemplate=old)
    assert not differ_in_images_only(former, revision(old, size=2, leaderTemplate=new))
    assert not differ_in_images_only(former, revision(new, size=2, leaderTemplate=old))
    both = revision(template(container("engine:3")), size=2, leaderTemplate=new)
    assert differ_in_images_only(former, both)
    assert [images_of(both, index) for index in (0, 1, 2)] == [
        {"engine": "engine:2"},
        {"engine": "engine:3"},
        {"engine": "engine:3"},
    ]
    # Of a single pod the leader is all there is.
    assert differ_in_images_only(revision(old, leaderTemplate=old), revision(old, leaderTemplate=new))
