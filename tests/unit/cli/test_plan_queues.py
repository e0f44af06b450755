"""`covey plan` with Queues: the scheduler's own judgement, from files."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from builders.files import (
    GPU,
    Object,
    admitted,
    cluster,
    covey,
    inference,
    member,
    namespace,
    plan,
    pod,
    queue,
    role,
    workload,
    write,
)
from covey.api.constants import LABEL_POD_GROUP


def root(name: str, since: str) -> Object:
    """The root of a unit of the namespace batch that is admitted."""
    return {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "batch", "uid": name},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}},
        "status": {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": since}]},
    }


def tenants(*, nominal: int = 16, **batch: Any) -> list[Object]:
    """Search has 16 devices by right; batch has none, and borrows."""
    search = queue("search", nominal, team="search", cohort="gpus")
    return [search, queue("batch", 0, team="batch", cohort="gpus", **batch), *map(_of_its_team, ("search", "batch"))]


def _of_its_team(name: str) -> Object:
    return namespace(name, team=name)


def serving(workload: str, replica: int, node: str) -> Object:
    """A pod of the namespace batch that has been Ready for long."""
    found = member(workload, "w", replica, 0, node)
    found["metadata"]["namespace"] = "batch"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("PodScheduled", "Ready")
    ]
    found["status"]["conditions"] = conditions
    return found


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def make(nodes: int, *documents: Object, pods: list[Object] | None = None) -> list[object]:
        arguments: list[object] = ["-f", write(tmp_path / "in.json", documents)]
        arguments += ["--nodes", write(tmp_path / "nodes.json", cluster(nodes))]
        return [*arguments, "--pods", write(tmp_path / "pods.json", pods)] if pods is not None else arguments

    return make


def test_a_minimum_beyond_its_quota_is_refused_in_the_words_of_the_condition(files: Any) -> None:
    arguments = files(4, queue("all", 8), inference("big", role("w", 2, 2)), inference("small", role("w")))
    answer = plan(*arguments)
    big = workload(answer, "big")
    assert (big["verdict"], admitted(big)) == ("Infeasible", {"w": 0})
    (reason,) = big["reasons"]
    assert (
        reason["message"]
        == f"8 of 8 {GPU} of queue all are in use; 16 short; all is in no cohort that it could borrow from"
    )
    assert (reason["resource"], reason["short"]) == (GPU, "16")
    assert workload(answer, "small")["verdict"] == "Admitted"
    result = covey("plan", *arguments)
    assert result.exit_code == 3
    assert "Infeasible: default/big: 8 of 8" in " ".join(result.output.split())


@pytest.mark.parametrize("named", ["search", "nowhere"])
def test_a_wrong_queue_sets_no_quota_free(files: Any, named: str) -> None:
    """What serves already is charged to the queue that selects its namespace, as the scheduler process does it."""
    running = inference("old", role("w", 2, 1), namespace="batch", queue=named)
    pods = [serving("old", 0, "n0-0-0"), serving("old", 1, "n0-0-1")]
    new = inference("new", role("w"), namespace="batch")
    answer = plan(*files(4, *tenants(borrowMinimums=True), running, new, pods=pods))
    assert "batch may borrow, its cohort has 0 idle" in workload(answer, "new")["reasons"][0]["message"]


def test_others_are_charged_where_their_groups_come_along(files: Any) -> None:
    """As `kubectl get pods,podgroups,queues,namespaces -A -o json` prints them."""
    group = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "others", "namespace": "search", "uid": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    members = [pod(f"other-{number}", f"n0-0-{number}", labels={LABEL_POD_GROUP: "others"}) for number in range(2)]
    for each in members:
        each["metadata"] |= {"namespace": "search", "ownerReferences": []}
    along = [*members, group, *tenants()]
    answer = plan(*files(4, inference("llm", role("w"), namespace="search"), pods=along))
    assert answer["warnings"] == []
    (reason,) = workload(answer, "llm")["reasons"]
    assert reason["message"].startswith(f"16 of 16 {GPU} of queue search are in use; 8 short")


@pytest.mark.parametrize(
    ("documents", "named", "message"),
    [
        (
            [queue("one", 8), queue("two", 8)],
            None,
            "queues one, two all select namespace default: name one in spec.queue",
        ),
        ([queue("one", 8)], "none", "there is no Queue none: create it, or name another in spec.queue"),
        (
            [queue("one", 8, team="search"), namespace("default")],
            "one",
            "queue one does not select namespace default: name another one",
        ),
    ],
)
def test_a_queue_that_may_not_be_used(files: Any, documents: list[Object], named: str | None, message: str) -> None:
    wanted = inference("llm", role("w"), **({"queue": named} if named else {}))
    found = workload(plan(*files(2, *documents, wanted)), "llm")
    assert found["verdict"] == "Infeasible"
    assert [each["message"] for each in found["reasons"]] == [message]


def test_without_any_queue_it_says_that_quota_is_not_counted(files: Any) -> None:
    answer = plan(*files(1, inference("llm", role("w"), queue="search")))
    assert workload(answer, "llm")["verdict"] == "Admitted"
    assert answer["warnings"] == ["default/llm: quota is not counted, as queue search is not given; give it with -f"]
    assert plan(*files(1, inference("llm", role("w"))))["warnings"] == []


def test_what_is_not_counted_is_said(files: Any) -> None:
    stray = member("other", "w", 0, 0, "n0-0-0")
    documents = [queue("search", 8, team="search"), inference("llm", role("w"), backend="Kubernetes")]
    assert plan(*files(2, *documents, pods=[stray]))["warnings"] == [
        "default/llm: no Queue counts it, as another scheduler assigns its nodes",
        "namespace default is not given, so that it has no label team; give it with -f",
        "no Queue counts 1 pods whose groups are not given; give those with --pods",
    ]


def test_a_queue_that_is_malformed_is_bad_input(files: Any) -> None:
    wrong = queue("one", 8)
    wrong["spec"]["nominal"] = 8
    result = covey("plan", *files(1, wrong, inference("llm", role("w"))))
    assert result.exit_code == 2
    assert "spec.nominal: unknown field" in result.output


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_passes_a_quota_and_none_wastes_it(files: Any, seed: int) -> None:
    """Each tenant has at most what it may borrow, all of them what there is, and nobody waits in front of idle quota."""
    generator = random.Random(seed)
    names = ("a", "b", "c")
    nominal = {name: generator.randint(0, 3) for name in names}
    borrow = {name: generator.randint(0, 3) for name in names}
    documents = [namespace(name, team=name) for name in names]
    documents += [
        queue(name, 8 * nominal[name], team=name, cohort="all", borrow=8 * borrow[name], borrowMinimums=True)
        for name in names
    ]
    wanted = [
        inference(
            f"x{number}", role("w", minimum + generator.randint(0, 3), minimum), namespace=generator.choice(names)
        )
        for number in range(generator.randint(1, 6))
        for minimum in (generator.randint(1, 2),)
    ]
    answer = plan(*files(20, *documents, *wanted))
    used = Counter[str]()
    for each in answer["workloads"]:
        used[each["namespace"]] += admitted(each)["w"]
    total = sum(nominal.values())
    assert sum(used.values()) <= total
    for each in answer["workloads"]:
        name, (found,) = each["namespace"], each["units"][0]["roles"]
        left = min(total - sum(used.values()), nominal[name] + borrow[name] - used[name])
        assert left >= 0
        lacks = found["replicas"] - found["admitted"] if each["verdict"] == "Admitted" else 0
        assert not (lacks and left), "surplus waits, though there is quota and room for a replica"
        assert each["verdict"] == "Admitted" or left < found["minReplicas"]


class TestPreempt:
    """Two nodes, full with two replicas of batch that are borrowed; search has a right to both."""

    @pytest.fixture
    def arguments(self, files: Any) -> Any:
        def make(*documents: Object, minimum: int = 1, size: int = 1, **spec: Any) -> list[object]:
            old = inference("old", role("w", 2, minimum), namespace="batch")
            wanted = inference("chat", role("c", 1, 1, size=size), namespace="search", **spec)
            pods = [serving("old", 0, "n0-0-0"), serving("old", 1, "n0-0-1")]
            return [*files(2, *tenants(borrowMinimums=True), *documents, old, wanted, pods=pods), "--preempt"]

        return make

    def test_the_younger_admission_is_the_one_that_borrows(self, files: Any) -> None:
        """Batch has a right to one of its two units, of which the root of the cluster says since when it is admitted."""
        queues = [queue("search", 8, team="search", cohort="gpus"), *tenants()[2:]]
        queues.append(queue("batch", 8, team="batch", cohort="gpus", borrowMinimums=True))
        running = [inference(name, role("w"), namespace="batch") for name in ("a", "b")]
        pods = [serving("a", 0, "n0-0-0"), serving("b", 0, "n0-0-1")]
        roots = [root("a-0", "2026-02-01T00:00:00Z"), root("b-0", "2026-01-01T00:00:00Z")]
        wanted = inference("chat", role("c"), namespace="search")
        answer = plan(*files(2, *queues, *running, wanted, pods=[*pods, *roots]), "--preempt")
        (found,) = answer["preemptions"]
        assert [(each["kind"], each["name"]) for each in found["victims"]] == [("Unit", "a")]

    @pytest.mark.parametrize("same", [True, False])
    def test_victims_by_priority_are_of_the_same_queue(self, files: Any, same: bool) -> None:  # noqa: FBT001 - a parameter
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
        queues = [queue("search", 32, team="search"), queue("batch", 32, team="batch")]
        spaces = [namespace("search", team="search"), namespace("batch", team="batch")]
        old = inference("old", role("w", 2, 1), namespace="batch")
        new = inference("new", role("w"), namespace="batch" if same else "search", priorityClassName="high")
        pods = [serving("old", 0, "n0-0-0"), serving("old", 1, "n0-0-1")]
        (found,) = plan(*files(2, *queues, *spaces, high, old, new, pods=pods), "--preempt")["preemptions"]
        assert found["verdict"] == ("Preempting" if same else "Infeasible")
        assert [each["name"] for each in found["victims"]] == (["old"] if same else [])


def resource_quota(hard: int, used: int = 0) -> Object:
    amount = f"requests.{GPU}"
    status = {"hard": {amount: str(hard)}, "used": {amount: str(used)}}
    meta = {"name": "gpus", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": meta,
        "spec": {"hard": status["hard"]},
        "status": status,
    }


def test_minimums_that_a_resource_quota_does_not_allow_together_are_refused_in_the_words_of_the_condition(
    files: Any,
) -> None:
    resources = [inference(name, role("w", 2, 2)) for name in ("first", "second")]
    arguments = files(8, *resources, pods=[resource_quota(24)])
    answer = plan(*arguments)
    assert workload(answer, "first")["verdict"] == "Admitted"
    second = workload(answer, "second")
    assert (second["verdict"], admitted(second)) == ("Infeasible", {"w": 0})
    [reason] = second["reasons"]
    assert reason["message"] == (
        "no pod of unit 0 is created before its whole minimum fits: quota default/gpus: "
        f"requests.{GPU} 16 needed, 8 left; raise the quota, or ask for less"
    )


def test_surplus_that_a_resource_quota_does_not_allow_is_a_warning(files: Any) -> None:
    answer = plan(*files(8, inference("llm", role("w", 3, 1)), pods=[resource_quota(16, 8)]))
    assert workload(answer, "llm")["verdict"] == "Admitted"
    [warning] = [each for each in answer["warnings"] if "surplus" in each]
    assert warning.startswith(
        "default/llm unit 0: surplus has no quota: unit 0 cannot have replica 1 of w (and 1 more)"
    )
    assert warning.endswith(f"quota default/gpus: requests.{GPU} 8 needed, 0 left")


def test_surplus_without_nodes_says_why_in_the_words_of_the_planner(files: Any) -> None:
    answer = plan(*files(2, inference("llm", role("w", 3, 1))))
    assert workload(answer, "llm")["verdict"] == "Admitted"
    [warning] = [each for each in answer["warnings"] if "surplus" in each]
    assert warning.startswith("default/llm unit 0: surplus has no nodes: w: capacity for 2 of 3 replicas")
