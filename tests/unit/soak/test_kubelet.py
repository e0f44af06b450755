"""What the soak says as a kubelet of pods whose images change."""

from __future__ import annotations

from typing import Any

from soak.facts import read_pod
from soak.kubelet import advance_containers
from unit.soak.histories import pod


def running(image: str, told: str, **status: Any) -> dict[str, Any]:
    found = pod("0/decode/0/0", node="n0", ready=True)
    found["spec"]["containers"][0]["image"] = image
    found["status"]["containerStatuses"] = [
        {"name": "engine", "image": told, "ready": True, "restartCount": 2, **status}
    ]
    return found


def test_nothing_to_do() -> None:
    assert not read_pod(running("one", "one")).updating
    assert not read_pod(pod("0/decode/0/0")).updating


def test_an_exchange_in_two_steps() -> None:
    found = running("two", "one", state={"running": {}})
    assert read_pod(found).updating
    statuses, ready = advance_containers(found)
    assert not ready
    found["status"]["containerStatuses"] = statuses
    assert read_pod(found).updating
    [after], ready = advance_containers(found)
    assert ready
    assert (after["image"], after["restartCount"], after["imageID"]) == ("two", 3, "registry.test/digest@two")
    assert "running" in after["state"]
