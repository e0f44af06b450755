"""Which changes of a template a running pod can be given."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role, template
from covey.api.inference import DisaggregatedInference
from covey.compile.revision import Revision, RoleRevision
from covey.rollout.step import differ_in_images_only, images_of


def container(image: str = "engine:1", **fields: Any) -> dict[str, Any]:
    return {"name": "engine", "image": image, **fields}


def revision(template: dict[str, Any], **fields: Any) -> RoleRevision:
    found: DisaggregatedInference = inference(role("decode", template=template, **fields))
    return Revision.of(found.spec).roles["decode"]


BASE = template(container())
METRICS = {"name": "metrics", "image": "metrics:1"}


@pytest.mark.parametrize(
    ("former", "wanted"),
    [
        (BASE, template(container("engine:2"))),
        (BASE, template(container("mirror.test:5000/engine:1"))),
        (BASE, template(container("engine@sha256:00"))),
        (template(container(), METRICS), template(container(), {**METRICS, "image": "metrics:2"})),
        (template(container(), initContainers=[METRICS]), template(container("engine:2"), initContainers=[METRICS])),
        (template(container("engine")), template(container("other:latest"))),
        (BASE, template(container("engine:latest", imagePullPolicy=None))),
        (template(container(imagePullPolicy="Always")), template(container("engine:latest", imagePullPolicy="Always"))),
    ],
)
def test_images_of_containers_can_be_exchanged(former: dict[str, Any], wanted: dict[str, Any]) -> None:
    pulled_alike = wanted["spec"]["containers"][0]["image"] != "engine:latest" or "imagePullPolicy" in str(former)
    assert differ_in_images_only(revision(former), revision(wanted)) == pulled_alike


@pytest.mark.parametrize(
    "wanted",
    [
        BASE,
        template(container("engine:2", env=[{"name": "A", "value": "b"}])),
        template(container("engine:2"), METRICS),
        template({**container("engine:2"), "name": "other"}),
        template(container("engine:2"), nodeSelector={"new": "yes"}),
        template(container("engine:latest")),
        template(container("engine")),
        {"metadata": {"labels": {"a": "b"}}, **template(container("engine:2"))},
    ],
)
def test_whatever_else_changes_takes_new_pods(wanted: dict[str, Any]) -> None:
    assert not differ_in_images_only(revision(BASE), revision(wanted))


@pytest.mark.parametrize("sidecar", [{}, {"restartPolicy": "Always"}])
def test_init_containers_do_not_run_again(sidecar: dict[str, Any]) -> None:
    before = template(container(), initContainers=[{**METRICS, **sidecar}])
    after = template(container("engine:2"), initContainers=[{**METRICS, **sidecar, "image": "metrics:2"}])
    assert not differ_in_images_only(revision(before), revision(after))


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
