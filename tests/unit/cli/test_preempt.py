"""`covey plan --preempt`: who would give way to what has no place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.files import Object, cluster, covey, inference, member, plan, queue, role, write


def serving(workload: str, replica: int, node: str, since: str = "2026-01-01T00:00:00Z") -> Object:
    """A pod that has been Ready for long."""
    found = member(workload, "w", replica, 0, node)
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("PodScheduled", "Ready")]
    found["status"]["conditions"] = conditions
    return found


def online(**more: Any) -> list[Object]:
    """The class of a resource that goes before others."""
    meta = {"name": "online"}
    return [{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000, **more}]


@pytest.fixture
def arguments(tmp_path: Path) -> Any:
    """Two nodes, full with two replicas of which one is surplus; a resource of higher priority wants one."""

    def make(*, minimum: int = 1, **of_class: Any) -> list[object]:
        wanted = inference("chat", role("w", 1, 1), priorityClassName="online")
        documents = [*online(**of_class), inference("batch", role("w", 2, minimum)), wanted]
        pods = [serving("batch", 0, "n0-0-0"), serving("batch", 1, "n0-0-1")]
        files = {"-f": documents, "--nodes": cluster(2), "--pods": pods}
        found: list[object] = []
        for option, content in files.items():
            found += [option, write(tmp_path / f"{option.strip('-')}.json", content)]
        return found

    return make


def test_the_surplus_of_another_would_give_way(arguments: Any) -> None:
    answer = plan(*arguments(), "--preempt")
    (found,) = answer["preemptions"]
    assert (found["namespace"], found["name"], found["verdict"]) == ("default", "chat", "Preempting")
    assert found["victims"] == [
        {
            "kind": "Replica",
            "namespace": "default",
            "name": "batch",
            "unit": 0,
            "role": "w",
            "replica": 1,
            "priority": 0,
            "pods": 1,
        }
    ]
    assert found["nodes"] == ["n0-0-1"]
    assert found["message"] == "takes w/1 of default/batch-0: 8 nvidia.com/gpu in host b0/r0/n0-0-1"


def test_nobody_is_named_without_the_option(arguments: Any) -> None:
    assert plan(*arguments())["preemptions"] == []


def test_ordinary_pods_give_way_only_where_that_is_asked_for(arguments: Any, tmp_path: Path) -> None:
    given = arguments(minimum=2)
    web = serving("web", 0, "n0-0-0")
    web["metadata"] = {"name": "web", "namespace": "dev", "uid": "web"}
    write(tmp_path / "pods.json", [web, serving("batch", 1, "n0-0-1")])
    whole = plan(*given, "--preempt")["preemptions"]
    asked = plan(*given, "--preempt", "--ordinary-pods")["preemptions"]
    found = [[(each["kind"], each["name"]) for each in answer[-1]["victims"]] for answer in (whole, asked)]
    assert found[1] == [("Pod", "web")], asked
    assert found[0] != found[1]


def test_the_table_says_it_too(arguments: Any) -> None:
    result = covey("plan", *arguments(minimum=2), "--preempt")
    assert result.exit_code == 3
    said = "Preemption: default/chat unit 0 takes all of default/batch-0: 16 nvidia.com/gpu in host b0/r0/n0-0-0"
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("of_class", "verdict", "message"),
    [
        ({}, "Preempting", "takes all of default/batch-0"),
        ({"preemptionPolicy": "Never"}, "Infeasible", "is refused by quota"),
    ],
)
def test_a_lower_priority_of_a_full_queue_gives_way(
    arguments: Any, tmp_path: Path, of_class: Any, verdict: str, message: str
) -> None:
    """As the scheduler process has it; the nodes would do, quota would not."""
    given = arguments(minimum=2, **of_class)
    write(tmp_path / "nodes.json", cluster(3))
    given += ["-f", write(tmp_path / "queue.json", [queue("all", 16)])]
    (found,) = plan(*given, "--preempt")["preemptions"]
    assert (found["verdict"], found["message"][: len(message)]) == (verdict, message)


@pytest.mark.parametrize("of_batch", [{"priorityClassName": "gone"}, {}])
def test_unit_when_its_class_or_the_default_is_gone_keeps_the_priority_of_its_pods(
    arguments: Any, tmp_path: Path, of_batch: dict[str, str]
) -> None:
    given = arguments()
    wanted = inference("chat", role("w", 1, 1), priorityClassName="online")
    write(tmp_path / "f.json", [*online(), inference("batch", role("w", 2, 1), **of_batch), wanted])
    pods = [serving("batch", 0, "n0-0-0"), serving("batch", 1, "n0-0-1")]
    for pod in pods:
        pod["spec"]["priority"] = 2000
    write(tmp_path / "pods.json", pods)
    answer = plan(*given, "--preempt")
    assert [found["verdict"] for found in answer["preemptions"]] == ["Infeasible"], answer["preemptions"]
    assert not [text for text in answer["warnings"] if "unknown priority class" in text]
