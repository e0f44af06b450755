"""Scenarios of what a backend can carry, and of Kubernetes' own gangs without Covey's operator."""

from __future__ import annotations

from typing import Any, Final

import yaml

from cluster.serving import BLOCK, RACK, replicas, workers
from cluster.workbench import label
from localcluster.programs import ROOT
from matrix.bench import Bench
from matrix.columns import KUBERNETES_1_35, KUBERNETES_1_36, KUBERNETES_1_37, VOLCANO
from matrix.outcome import DiffersError, differs, refused
from matrix.rows import NATIVE, NOTHING, Rows
from matrix.upstream import Groups

ROWS: Final = Rows()
scenario = ROWS.scenario
_HALF_A_GANG: Final = "one role takes both nodes, the other has none"


@scenario("`minReplicas: 0`: a role outside the gang")
def outside_the_gang(bench: Bench) -> None:
    """Three nodes hold the gang; the router asks for no GPU, so it could start before, and may or may not."""
    bench.nodes(2)
    router = workers("router", gpus=0, minReplicas=0)
    bench.create(workers("prefill", size=2), workers("decode"), router)
    bench.rest()
    bench.nodes(1)
    bench.expect(prefill=1, decode=1, router=1)


@scenario("`topology.required`: a unit in one block")
def unit_in_one_block(bench: Bench) -> None:
    """Two blocks have two free nodes each, and three are needed, until a block of four comes."""
    bench.nodes(1, racks=2, blocks=2)
    bench.create(workers("prefill", size=2), workers("decode"), topology={"required": "block"})
    bench.expect()
    bench.nodes(2, racks=2)
    bench.expect(prefill=1, decode=1)
    assert len(bench.domains_of(BLOCK)) == 1


@scenario("`roles[].topology.required`: each replica in one rack")
def replica_in_one_rack(bench: Bench) -> None:
    bench.nodes(3, racks=3)
    wanted = {"required": "rack"}
    bench.create(workers("prefill", replicas=2, size=3, minReplicas=2, topology=wanted), workers("decode"))
    bench.expect(prefill=2, decode=1)
    for members in replicas(bench.pods(role="prefill")).values():
        assert len(bench.domains(members, RACK)) == 1


@scenario("both: a unit in one block, each replica in one rack")
def two_levels(bench: Bench) -> None:
    bench.nodes(2, racks=2, blocks=2)
    wanted = {"required": "rack"}
    prefill = workers("prefill", replicas=2, size=2, minReplicas=2, topology=wanted)
    bench.create(prefill, topology={"required": "block"})
    bench.expect(prefill=2)
    assert len(bench.domains_of(BLOCK)) == 1
    assert len(bench.domains_of(RACK)) == 2
    for members in replicas(bench.pods()).values():
        assert len(bench.domains(members, RACK)) == 1


@scenario(
    "`topology.preferred`: as close as there is capacity for",
    dict.fromkeys((*NATIVE, VOLCANO), refused("spec.topology.preferred")),
)
def preferred_level(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    bench.create(workers("prefill", size=3), topology={"required": "block", "preferred": "rack"})
    bench.expect(prefill=1)
    assert len(bench.domains_of(RACK)) == 2


@scenario("`proximity`: two of three roles in one rack", dict.fromkeys((*NATIVE, VOLCANO), refused("spec.proximity")))
def proximity(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    together: dict[str, Any] = {"roles": ["prefill", "decode"], "level": "rack", "mode": "Required"}
    bench.create(workers("prefill"), workers("decode"), workers("router"), proximity=[together])
    bench.expect(prefill=1, decode=1, router=1)
    inside = [each for name in ("prefill", "decode") for each in bench.bound(role=name)]
    assert len(bench.domains(inside, RACK)) == 1


@scenario("`spread`: units in different racks", dict.fromkeys((*NATIVE, VOLCANO), refused("spec.spread")))
def spread(bench: Bench) -> None:
    bench.nodes(2, racks=2)
    bench.create(workers("prefill"), replicas=2, spread={"level": "rack", "mode": "Required"})
    one = {"prefill": 1}
    bench.expect_all({("llm", 0): one, ("llm", 1): one})
    assert len(bench.domains_of(RACK)) == 2


@scenario(
    "nine roles",
    {
        KUBERNETES_1_37: refused("a list of templates in a Workload takes 8"),
        KUBERNETES_1_36: refused("a Workload takes 8"),
        KUBERNETES_1_35: refused("a Workload takes 8"),
    },
)
def nine_roles(bench: Bench) -> None:
    names = [f"role-{number}" for number in range(9)]
    bench.nodes(9)
    bench.create(*(workers(name) for name in names))
    bench.expect(**dict.fromkeys(names, 1))
    assert {label(pod, "role") for pod in bench.pods()} == set(names)


@scenario("the example of the README, `examples/disaggregated.yaml`")
def example(bench: Bench) -> None:
    """Four and two replicas in one of two blocks, each in one of its three racks."""
    bench.nodes(6, racks=3, blocks=2)
    manifest = yaml.safe_load((ROOT / "examples" / "disaggregated.yaml").read_text())
    bench.create(*manifest["spec"].pop("roles"), **manifest["spec"])
    bench.expect(prefill=4, decode=2)
    assert len(bench.domains_of(BLOCK)) == 1
    for members in replicas(bench.pods()).values():
        assert len(bench.domains(members, RACK)) == 1


# What Kubernetes' own gangs do without Covey's operator, from the same pods


@scenario(
    "*kube-scheduler alone:* surplus leaves capacity for the other role's minimum",
    {
        KUBERNETES_1_37: differs(NOTHING),
        KUBERNETES_1_36: differs(_HALF_A_GANG),
    },
    # 1.35 takes pod after pod, of whichever role comes first.
    only=(KUBERNETES_1_37, KUBERNETES_1_36),
)
def surplus_steals(bench: Bench) -> None:
    """Four and two pods, the minimum one of each, and two nodes."""
    bench.nodes(2)
    Groups(bench, {"prefill": (4, 1), "decode": (2, 1)}).create()
    try:
        bench.expect(prefill=1, decode=1)
    except DiffersError:
        if sorted(bench.whole().values()) == [0, 2]:
            raise DiffersError(_HALF_A_GANG) from None
        raise


@scenario(
    "*kube-scheduler alone:* a gang that fits in one way only",
    {KUBERNETES_1_37: differs(NOTHING)},
    only=(KUBERNETES_1_37,),
)
def one_way_only_upstream(bench: Bench) -> None:
    """Groups of 2, 3, 2, 3 and 2 pods, each in one rack, fill two racks of six as 2 + 2 + 2 and 3 + 3."""
    bench.nodes(6, racks=2)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2}
    Groups(bench, {name: (size, size) for name, size in sizes.items()}, in_racks=True).create()
    bench.expect(**sizes)
