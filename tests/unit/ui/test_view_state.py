"""A view's state, from objects alone."""

import random
from typing import Any

import msgspec
import pytest

from builders.files import node, role
from covey.api import core
from covey.ui import contract
from covey.ui.view_state import ViewBuilder, WatchedObject, draw
from merge_patch import merge
from unit.ui.world import bound, condition, expanded, nodes, owned, stranger, told


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_preset_that_running_units_keep_when_nodes_of_another_join_then_is_still_drawn() -> None:
    clique = {"nvidia.com/gpu.clique": "c"}
    rack = {"cloud.provider.com/topology-rack": "r"}
    labels = {"old": {**clique, **rack}, "new-0": clique, "new-1": clique, "new-2": clique}
    joined = [msgspec.convert(node(name, labels=found), core.Node) for name, found in labels.items()]
    root = expanded("llm")["llm-0"]
    kept = told(root, topology="kueue", admitted=1)
    assert draw(joined).topology.name == "nvidia-clique"
    assert draw([*joined, kept]).topology.name == "kueue"
    board = ViewBuilder()
    for thing in (*joined, root):
        board.update(thing)
    assert board.parts().topology.name == "nvidia-clique"
    board.update(kept, root)
    assert board.parts().topology.name == "kueue"
    board.drop(kept)
    assert board.parts().topology.name == "nvidia-clique"


def test_a_gang_its_pods_and_its_places() -> None:
    things = expanded("llm")
    things["llm-0-decode-0-0"] = bound(things["llm-0-decode-0-0"], "n0-0-0")
    things["llm-0-prefill-0-0"] = bound(things["llm-0-prefill-0-0"], "n0-0-1", ready=False)
    things["llm-0-prefill-1-0"] = bound(things["llm-0-prefill-1-0"], "n0-0-1", **{"covey.dev/draining": "true"})
    things["llm-0"] = told(things["llm-0"], conditions=[condition("Admitted", "True", "Admitted")])
    parts = draw([*nodes(2), *things.values()])
    gang = parts.gangs["default/llm"]
    assert (gang.state, gang.ready, gang.total, gang.backend) == ("serving", 1, 1, "Extender")
    assert [(each.name, each.letter, each.ink) for each in gang.roles] == [("prefill", "P", 0), ("decode", "D", 1)]
    pods = {name.removeprefix("default/llm-0-"): each for name, each in parts.pods.items()}
    assert (pods["decode-0-0"].state, pods["decode-0-0"].node, pods["decode-0-0"].cells) == ("ready", "n0-0-0", 8)
    assert pods["prefill-0-0"].state == "starting"
    assert [name for name, pod in pods.items() if pod.draining] == ["prefill-1-0"]
    assert parts.nodes["n0-0-0"].others == 0, "they are no strangers"


def test_what_a_unit_waits_for_with_advice_and_what_is_kept_for_it() -> None:
    things = expanded("llm")
    kept = {
        "level": "rack",
        "path": ["b0", "r0"],
        "since": "2026-01-01T00:05:00Z",
        "resource": "nvidia.com/gpu",
        "nodes": ["n0-0-0"],
    }
    refused = condition("Admitted", "False", "Infeasible", "decode: no rack has room")
    things["llm-0"] = told(things["llm-0"], conditions=[refused], claim=kept)
    things[""] = told(things[""], conditions=[refused, condition("Ready", "False", "Infeasible")])
    (name, wait), *more = draw(things.values()).waiting.items()
    assert not more, "the resource says nothing that the unit does not say"
    assert (name, wait.unit, wait.reason, wait.since) == ("default/llm/0/0", 0, "Infeasible", "2026-01-01T00:00:09Z")
    assert "covey plan" in wait.remedy
    assert wait.reserved is not None
    assert "nvidia.com/gpu in rack b0/r0" in wait.reserved


def test_why_there_are_no_groups_is_what_the_resource_says() -> None:
    resource = expanded("llm")[""]
    (wait,) = draw([resource]).waiting.values()
    assert (wait.unit, wait.reason, wait.message) == (0, "Waiting", "its groups do not exist yet")
    denied = condition("Admitted", "False", "TemplateRejected", "no such field")
    (wait,) = draw([told(resource, conditions=[denied])]).waiting.values()
    assert (wait.unit, wait.reason, wait.needs_person) == (None, "TemplateRejected", True)


def test_a_held_rollout_and_a_suspended_gang() -> None:
    resource = expanded("llm")[""]
    hold = {"gate": "Nodes", "message": "no room for one more", "since": "2026-01-01T00:01:00Z"}
    parts = draw([told(resource, rollout={"fromRevision": "a", "toRevision": "b", "wave": 2, "hold": hold})])
    rollout = parts.gangs["default/llm"].rollout
    assert rollout is not None
    assert (rollout.from_, rollout.to, rollout.wave) == ("a", "b", 2)
    assert rollout.hold == contract.HoldView("Nodes", "no room for one more", "2026-01-01T00:01:00Z")
    assert "Nodes" in {each.reason for each in parts.waiting.values()}
    suspended = expanded("off", suspend=True)
    assert draw([suspended[""]]).waiting == {}


def test_a_resource_that_is_not_understood_is_told_beside_the_others() -> None:
    odd = msgspec.structs.replace(expanded("odd")[""], spec={"roles": [{"name": 5}, "x"]})  # type: ignore[type-var]
    gangs = draw([odd, expanded("llm")[""]]).gangs
    assert "not understood by this release" in gangs["default/odd"].problem
    assert gangs["default/llm"].problem == ""


@pytest.mark.parametrize("value", ["9" * 63, "x", ""])
def test_labels_of_strangers_are_numbers_that_a_browser_has(value: str) -> None:
    pod = bound(expanded("llm")["llm-0-decode-0-0"], "n", **{"covey.dev/unit": value, "covey.dev/replica": value})
    (drawn,) = draw([pod]).pods.values()
    assert 0 <= drawn.unit < 2**53
    assert plain(drawn)["replica"] == drawn.replica


def test_gangs_of_other_controllers_are_counted() -> None:
    groups = [each for each in expanded("llm").values() if isinstance(each, core.Group)]
    roots = [each for each in groups if each.spec.parent_composite_pod_group_name is None]
    assert draw(groups).foreign == 0
    assert draw(owned(each, None) for each in groups).foreign == len(roots) == 1
    board = ViewBuilder()
    for each in groups:
        board.update(owned(each, None))
    assert board.change()["foreign"] == 1
    for each in groups:
        board.update(each, owned(each, None))
    assert board.change()["foreign"] == 0


def test_a_group_that_changes_hands_is_told_of_its_new_owner_alone() -> None:
    things = expanded("a")
    root = told(things["a-0"], conditions=[condition("Admitted", "False", "Infeasible", "no room")])
    board = ViewBuilder()
    for each in (*(things | {"a-0": root}).values(), expanded("b")[""]):
        board.update(each)
    assert [each.reason for each in board.parts().waiting.values() if each.gang == "default/a"] == ["Infeasible"]
    board.update(owned(root, "b"), root)
    reasons = {each.gang: each.reason for each in board.parts().waiting.values()}
    assert reasons == {"default/a": "Waiting", "default/b": "Infeasible"}


@pytest.mark.parametrize("seed", range(8))
def test_changes_add_up_to_what_the_objects_make(seed: int) -> None:
    generator = random.Random(seed)
    pool: list[WatchedObject] = [*nodes(2, 2), stranger("job", "n0-0-0", 3)]
    for name in ("a", "b"):
        things = expanded(name, role("w", 2, 1), created=f"2026-01-0{1 + len(name)}T00:00:00Z")
        pool += things.values()
    board, state, held = ViewBuilder(), None, dict[Any, WatchedObject]()
    for _ in range(120):
        thing = generator.choice(pool)
        key = (type(thing), thing.metadata.key)
        if key in held and generator.random() < 0.4:
            board.drop(held.pop(key))
        else:
            if isinstance(thing, core.Pod) and generator.random() < 0.7:
                thing = bound(thing, generator.choice(["n0-0-0", "n0-1-1"]), ready=generator.random() < 0.5)
            elif isinstance(thing, core.Group) and generator.random() < 0.5:
                thing = owned(thing, generator.choice([None, "a", "b"]))
            elif isinstance(thing, core.Node) and generator.random() < 0.5:
                thing = msgspec.structs.replace(thing, spec=core.NodeSpec(unschedulable=True))
            board.update(thing, held.get(key))
            held[key] = thing
        if generator.random() < 0.3:
            state = merge(state, plain(board.change()))
    state = merge(state, plain(board.change()))
    whole = plain(_parts(draw(held.values())))
    assert {key: state.get(key, {}) for key in whole} == merge(None, whole)


PARTS = ("topology", "resource", "nodes", "gangs", "foreign", "pods", "waiting")


def _parts(parts: Any) -> dict[str, Any]:
    return {name: getattr(parts, name) for name in PARTS}
