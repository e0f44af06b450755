"""Ordinary pods through an existing kube-scheduler that Covey was attached to fare as without it.

The scenarios run twice, all at the same time: through a stock kube-scheduler, and through one to whose configuration
Covey's profile and its two extender entries were added, as a user would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from attached import Attachment
from cluster.processes.ordinary import Stage, select, stage
from cluster.processes.ordinary_scenarios import SCENARIOS, Outcome
from localcluster import Cluster, eventually
from scheduler_trees import GATE, START_GATE, Bench, Role, Tree, pin_of

Results = Mapping[str, Mapping[str, Future[Outcome]]]
#: The barrier binds pods of named profiles only, and all profiles of a kube-scheduler share its extenders.
SERVED = "--scheduler-name=covey-scheduler,default-scheduler"
_CLASSES = {"harm-low": -10, "harm-middle": 500, "harm-high": 1000}


@pytest.fixture(scope="module")
def priorities(cluster: Cluster) -> Iterator[None]:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in _CLASSES.items():
        cluster.api("POST", path, {"metadata": {"name": name}, "value": value})
    yield
    for name in _CLASSES:
        cluster.api("DELETE", f"{path}/{name}")


@pytest.fixture(scope="module")
def results(cluster: Cluster, priorities: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The outcomes of all scenarios, without and with; afterwards Covey's processes still run."""
    assert priorities is None
    try:
        cluster.start_scheduler()
        without = play(cluster)
        attachment = Attachment(cluster, tmp_path_factory.mktemp("tls"), SERVED)
        cluster.start_scheduler(attachment.beside_stock())
        yield {"without": without, "with": play(cluster)}
    finally:
        cluster.forget("kube-scheduler", "covey-scheduler")


def play(cluster: Cluster) -> Mapping[str, Future[Outcome]]:
    """Run all scenarios at the same time; what one raises is raised where its outcome is asked for."""

    def one(scenario: Callable[[Stage], Outcome]) -> Outcome:
        with stage(cluster) as made:
            return scenario(made)

    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        return {scenario.__name__: pool.submit(one, scenario) for scenario in SCENARIOS}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("extender", ["without", "with"])
def test_ordinary_pods_fare_as_without_covey(
    results: Results, scenario: Callable[[Stage], Outcome], extender: str
) -> None:
    assert results[extender][scenario.__name__].result() == SCENARIOS[scenario]


@pytest.fixture
def made(cluster: Cluster, results: Results) -> Iterator[Stage]:
    """A stage where Covey is attached."""
    assert results
    with stage(cluster) as new:
        yield new


def gang_on(made: Stage, label: str, *, name: str = "gang", gpus: int = 8, started: bool = True) -> Tree:
    """A gang of one pod for the node of a class; unless it may start, its room is reserved and nothing bound."""
    gates = (GATE,) if started else (GATE, START_GATE)
    spec = {"nodeSelector": {"stage": made.namespace, "class": label}}
    return Bench(made.cluster, made.namespace).unit(name, Role("decode", gpus=gpus, gates=gates, spec=spec))


def await_pinned(gang: Tree) -> None:
    eventually(lambda: any(map(pin_of, gang.pods())), describe="the gang's room is reserved")


def test_reserved_room_is_left_alone_and_comes_free_with_the_gang(made: Stage) -> None:
    made.nodes("a", "b")
    gang = gang_on(made, "a", started=False)
    await_pinned(gang)
    assert made.where(made.pod("elsewhere", gpus=8)) == "b"
    assert made.where(made.pod("cpu-only")) in {"a", "b"}
    waits = made.where(made.pod("waits", gpus=8))
    assert waits == "pending: Insufficient nvidia.com/gpu, nvidia.com/gpu is reserved for admitted gangs"
    for pod in gang.pods():
        made.delete(pod["metadata"]["name"])
    assert made.await_bound("waits") == "a"


def test_an_ordinary_pod_evicts_another_rather_than_a_member(made: Stage) -> None:
    """By priorities alone the member would have to go."""
    made.nodes("a", "b")
    [member] = gang_on(made, "a").wait_bound()
    assert made.where(made.pod("ordinary", gpus=8, priorityClassName="harm-middle")) == "b"
    made.pod("high", gpus=8, priorityClassName="harm-high")
    assert made.await_gone("ordinary") == "gone"
    assert made.await_bound("high") == "b"
    assert made.where(made.pod("too-many", gpus=8, priorityClassName="harm-high")).startswith("pending: Insufficient")
    after = made.get(member["metadata"]["name"])
    assert "deletionTimestamp" not in after["metadata"]
    assert after["metadata"]["uid"] == member["metadata"]["uid"]


def test_a_pod_of_the_system_evicts_a_member(made: Stage) -> None:
    made.nodes("a")
    [member] = gang_on(made, "a").wait_bound()
    made.pod("daemon", gpus=8, priorityClassName="system-node-critical")
    assert made.await_gone(member["metadata"]["name"]) == "gone"
    assert made.await_bound("daemon") == "a"


def test_nobody_is_evicted_for_room_that_is_reserved(made: Stage) -> None:
    """kube-scheduler does not know of the six GPUs that a pinned pod has reserved; the eviction would be in vain."""
    made.nodes("a", "b")
    low = [made.pod(f"low-{label}", gpus=2, affinity=select(label), priorityClassName="harm-low") for label in "ab"]
    assert [made.where(each) for each in low] == ["a", "b"]
    await_pinned(gang_on(made, "a", gpus=6, started=False))
    made.pod("high-a", gpus=8, affinity=select("a"), priorityClassName="harm-high")
    assert made.where("high-a") == "pending: Insufficient nvidia.com/gpu"
    made.pod("high-b", gpus=8, affinity=select("b"), priorityClassName="harm-high")
    assert made.await_bound("high-b") == "b"
    assert "deletionTimestamp" not in made.get("low-a")["metadata"]


def test_room_that_was_made_for_a_pod_goes_to_no_gang(made: Stage) -> None:
    """A gang waits for the node, and kube-scheduler evicts a pod there for another: the room is that pod's."""
    made.nodes("a", "b")
    low = made.pod("low", gpus=8, affinity=select("a"), priorityClassName="harm-low")
    assert made.where(low) == "a"
    made.hold(low)
    gang = gang_on(made, "a")
    gang.wait_refused()
    made.pod("high", gpus=8, affinity=select("a"), priorityClassName="harm-high")
    eventually(lambda: made.get("high")["status"].get("nominatedNodeName"), describe="room is made")
    kube_scheduler = made.cluster.processes["kube-scheduler"]
    kube_scheduler.pause()  # so that the gang has all the time to be quicker
    try:
        made.hold(low, held=False)
        await_pinned(gang_on(made, "b", name="later"))
        assert not any(map(pin_of, gang.pods()))
    finally:
        kube_scheduler.resume()
    assert made.await_bound("high") == "a"
