"""Units and replicas come and go; what serves stays."""

from collections.abc import Callable

from builders.manifests import Object, role, template
from cluster.operating import bench, operator
from cluster.workbench import OWNED, Workbench, hostnames, label, name_of, uid_of
from localcluster import eventually

__all__ = ["bench", "operator"]


def roles(prefill: int = 2, decode: int = 2, **fields: object) -> list[Object]:
    return [role("prefill", replicas=prefill, size=2), role("decode", replicas=decode, **fields)]


def test_growth_leaves_what_runs_alone(bench: Workbench) -> None:
    bench.create()
    before = {uid_of(pod) for pod in bench.await_pods(6)}
    bench.change({"roles": roles(prefill=3, decode=4)})
    pods = bench.await_pods(10)
    assert before <= {uid_of(pod) for pod in pods}
    assert bench.get("CompositePodGroup", "llm-0-prefill")["spec"]["desiredGroupCount"] == 3
    assert bench.get("PodGroup", "llm-0-decode")["spec"]["desiredCount"] == 4
    eventually(lambda: "ScaledUp" in bench.events())


def test_scale_down_takes_what_does_not_serve(bench: Workbench, nodes: Callable[..., list[str]]) -> None:
    (node, *_) = nodes(blocks=1, racks=1, nodes=1)
    bench.create(*roles(prefill=3, decode=3))
    pods = bench.await_pods(9)
    serving = [pod for pod in pods if label(pod, "replica") != "0"]
    bench.bind(serving, node)
    bench.change({"roles": roles(prefill=2, decode=1)})
    kept = bench.await_pods(5)
    assert hostnames(kept) == ["0-decode-1-0", "0-prefill-1-0", "0-prefill-1-1", "0-prefill-2-0", "0-prefill-2-1"]
    eventually(
        lambda: (
            {name_of(group) for group in bench.owned("PodGroup")}
            == {
                "llm-0-prefill-1",
                "llm-0-prefill-2",
                "llm-0-decode",
            }
        )
    )
    eventually(lambda: "ScaledDown" in bench.events())
    bench.change({"roles": roles(prefill=3, decode=2)})
    assert hostnames(bench.await_pods(8))[:4] == ["0-decode-0-0", "0-decode-1-0", "0-prefill-0-0", "0-prefill-0-1"]


def test_units_through_the_scale_subresource(bench: Workbench) -> None:
    bench.create()
    first = {uid_of(pod) for pod in bench.await_pods(6)}
    bench.cluster.kubectl("scale", "dinf", "llm", "-n", bench.namespace, "--replicas=3")
    bench.await_pods(18)
    assert {label(group, "unit") for group in bench.owned("CompositePodGroup")} == {"0", "1", "2"}
    bench.cluster.kubectl("scale", "dinf", "llm", "-n", bench.namespace, "--replicas=1")
    assert {uid_of(pod) for pod in bench.await_pods(6)} == first
    eventually(lambda: {label(group, "unit") for group in bench.owned("CompositePodGroup")} == {"0"})


def test_suspend_gives_everything_up_and_resume_brings_it_back(bench: Workbench) -> None:
    bench.create()
    bench.await_pods(6)
    bench.change({"suspend": True})
    bench.await_pods(0)
    eventually(lambda: not any(map(bench.owned, OWNED)))
    bench.await_condition("Admitted", "False", "Suspended")
    bench.change({"suspend": False})
    bench.await_pods(6)
    bench.await_condition("Admitted", "False", "Waiting")


def test_waiting_pods_take_a_new_template_at_once(bench: Workbench) -> None:
    bench.create()
    bench.await_pods(6)
    changed = {"containers": [{"name": "engine", "image": "registry.test/engine:2"}]}
    bench.change({"roles": roles(template=template(**changed))})

    def renewed() -> bool:
        images = {
            (label(pod, "role"), pod["spec"]["containers"][0]["image"].rpartition(":")[2]) for pod in bench.pods()
        }
        return images == {("prefill", "1"), ("decode", "2")}

    eventually(renewed)
    bench.await_pods(6)
    assert len(bench.owned("ControllerRevision")) == 2
