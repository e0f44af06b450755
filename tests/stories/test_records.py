"""Records of accepted specs: taken up again, made anew where nobody can patch them, and missed by no pod when they go."""

from __future__ import annotations

from contextlib import suppress

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object, role, template
from cluster.workbench import is_gated, label, name_of, uids
from engine_commands import SERVE
from stage import Stage

KIND = "ControllerRevision"


def engines(image: str) -> Object:
    """A role whose template is as engines have them, with shell, JSON and Jinja."""
    container = {"name": "engine", "image": f"registry.test/engine:{image}", "command": list(SERVE)}
    return role("r", template=template(containers=[container]))


def records(stage: Stage) -> list[Object]:
    """The oldest first."""
    return sorted(stage.all(KIND), key=lambda record: record["revision"])


def roll(stage: Stage, image: str) -> None:
    stage.change(roles=[engines(image)])
    [pod] = stage.ready(1)
    assert pod["spec"]["containers"][0]["image"] == f"registry.test/engine:{image}"


@pytest.fixture
def rolled(stage: Stage) -> Stage:
    """A resource at its second revision."""
    stage.nodes()
    stage.create(engines("1"))
    stage.ready(1)
    roll(stage, "2")
    return stage


def label_all(stage: Stage) -> None:
    for record in records(stage):
        stage.patch(KIND, name_of(record), {"metadata": {"labels": {"team": "search"}}})


def test_record_when_its_spec_comes_back_is_taken_up_whatever_it_holds_and_whoever_patched_it(rolled: Stage) -> None:
    label_all(rolled)
    first, second = map(name_of, records(rolled))
    roll(rolled, "1")
    assert [name_of(record) for record in records(rolled)] == [second, first]


def test_record_when_nobody_can_patch_it_is_made_anew_with_what_others_put_on_it(rolled: Stage) -> None:
    first, second = records(rolled)
    kept = {field: first["metadata"][field] for field in ("name", "labels", "ownerReferences")}
    # Written as Python does: with blanks, and none of it escaped.
    written = {
        "apiVersion": "apps/v1",
        "kind": KIND,
        "metadata": {**kept, "annotations": {"example.com/kept": "yes"}},
        "revision": first["revision"],
        "data": first["data"],
    }
    with rolled.away("operator"):
        rolled.delete(KIND, name_of(first))
        rolled.cluster.api("POST", rolled.path(KIND), written)
        # Refused where the stored bytes are not as Go writes them; what the operator does holds in either case.
        with suppress(ApiException):
            label_all(rolled)
    roll(rolled, "1")
    assert [name_of(record) for record in records(rolled)] == [name_of(second), kept["name"]]
    label_all(rolled)
    rolled.settle()
    newest = records(rolled)[-1]
    assert newest["data"] == first["data"]
    assert newest["metadata"]["annotations"]["example.com/kept"] == "yes"
    assert newest["metadata"]["ownerReferences"] == kept["ownerReferences"]


def test_records_when_they_are_gone_take_no_pod_with_them(stage: Stage) -> None:
    stage.nodes()
    stage.create()
    pods = stage.ready(6)
    with stage.away("operator"):
        stage.cluster.api("DELETE", stage.path(KIND))
        stage.change(
            roles=[
                role("prefill", replicas=2, size=1),
                role("decode", replicas=3, template=template(nodeSelector={"a": "b"})),
            ]
        )
    stage.settle()
    assert uids(pods) <= uids(stage.pods())
    assert [label(pod, "role") for pod in stage.pods() if is_gated(pod)] == ["decode"]
