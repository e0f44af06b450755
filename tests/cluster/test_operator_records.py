"""Records of templates as engines have them, with shell, JSON and Jinja: they can be patched, whoever wrote them."""

from __future__ import annotations

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object, role, template
from cluster.operating import bench, operator
from cluster.workbench import Workbench
from engine_commands import SERVE
from localcluster import Process, eventually

__all__ = ["bench", "operator"]


def engines(image: str) -> Object:
    container = {"name": "engine", "image": f"registry.test/engine:{image}", "command": list(SERVE)}
    return role("r", template=template(containers=[container]))


def await_image(bench: Workbench, image: str) -> None:
    def found() -> bool:
        return [pod["spec"]["containers"][0]["image"] for pod in bench.pods()] == [f"registry.test/engine:{image}"]

    eventually(found, describe=f"the pod has image {image}")


def records(bench: Workbench) -> list[Object]:
    """The oldest first."""
    return sorted(bench.all("ControllerRevision"), key=lambda each: each["revision"])


def label_all(bench: Workbench) -> None:
    for record in records(bench):
        path = bench.path("ControllerRevision", record["metadata"]["name"])
        bench.cluster.api("PATCH", path, {"metadata": {"labels": {"team": "search"}}})


def test_a_spec_that_comes_back_takes_its_record_up_again(bench: Workbench, operator: Process) -> None:
    bench.create(engines("1"))
    await_image(bench, "1")
    bench.change({"roles": [engines("2")]})
    await_image(bench, "2")
    label_all(bench)
    first, second = (each["metadata"]["name"] for each in records(bench))
    bench.change({"roles": [engines("1")]})
    await_image(bench, "1")
    eventually(lambda: [each["metadata"]["name"] for each in records(bench)] == [second, first])
    assert operator.alive


def test_a_record_that_nobody_can_patch_is_made_anew(bench: Workbench, operator: Process) -> None:
    bench.create(engines("1"))
    await_image(bench, "1")
    bench.change({"roles": [engines("2")]})
    await_image(bench, "2")
    operator.kill()
    first, second = records(bench)
    path = bench.path("ControllerRevision", first["metadata"]["name"])
    bench.cluster.api("DELETE", path)
    kept = {field: first["metadata"][field] for field in ("name", "labels", "ownerReferences")}
    # Written as Python does: with blanks, and none of it escaped.
    written = {
        "metadata": {**kept, "annotations": {"example.com/kept": "yes"}},
        "revision": first["revision"],
        "data": first["data"],
    }
    bench.cluster.api(
        "POST", bench.path("ControllerRevision"), {"apiVersion": "apps/v1", "kind": "ControllerRevision", **written}
    )
    with pytest.raises(ApiException, match="immutable"):
        label_all(bench)
    operator.start()
    bench.change({"roles": [engines("1")]})
    await_image(bench, "1")
    eventually(
        lambda: [each["metadata"]["name"] for each in records(bench)] == [second["metadata"]["name"], kept["name"]]
    )
    label_all(bench)
    newest = records(bench)[-1]
    assert newest["data"] == first["data"]
    assert newest["metadata"]["annotations"]["example.com/kept"] == "yes"
    assert newest["metadata"]["ownerReferences"] == kept["ownerReferences"]
