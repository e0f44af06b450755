"""The laws of routing against histories made by hand: each can be broken, and what is allowed is not found."""

from __future__ import annotations

from typing import Any

from soak.routes import UNPAIRED
from soak.world import GRACE
from unit.soak.histories import History, Json, pod, role


def engine(name: str, image: str) -> Json:
    return role(name, template={"spec": {"containers": [{"name": "engine", "image": image}]}})


class Routed:
    """A resource whose pods have labels as Covey writes them."""

    def __init__(self, **spec: Any) -> None:
        self.history = History(engine("prefill", "1"), engine("decode", "1"), **spec)
        for name in ("prefill", "decode"):
            assert self.see(name, "1", "a") == []

    def body(self, name: str, image: str, pairing: str | None, *, number: int = 0, **fields: Any) -> Json:
        labels = {"covey.dev/endpoint": "true", "covey.dev/revision": f"of {image}"}
        labels |= {"covey.dev/pairing": pairing} if pairing else {}
        fields = {"ready": True, "node": f"n{number}", **fields, "labels": labels | fields.get("labels", {})}
        found = pod(f"0/{name}/{number}/0", **fields)
        found["spec"]["containers"][0]["image"] = image
        return found

    def see(self, name: str, image: str, pairing: str | None, **fields: Any) -> list[str]:
        history = self.history
        body = self.body(name, image, pairing, **fields)
        return [each.rule for each in history.checker.take("Pod", "MODIFIED", body, history.at)]


def test_a_pair_that_no_spec_has_had() -> None:
    found = Routed()
    assert found.see("decode", "2", "b", number=1) == []
    assert found.see("prefill", "1", "b", number=1) == ["mixed"]


def test_engines_of_two_images_in_one_pairing() -> None:
    found = Routed()
    found.history.wanted(engine("prefill", "1"), engine("decode", "2"))
    assert found.see("decode", "2", "a", number=1) == ["mixed"]


def test_pairings_beside_each_other_are_not_mixed() -> None:
    found = Routed()
    found.history.wanted(engine("prefill", "2"), engine("decode", "2"))
    assert [found.see(name, "2", "b", number=1) for name in ("prefill", "decode")] == [[], []]


def test_a_pod_that_drains_and_is_found() -> None:
    assert "routed" in Routed().see("decode", "1", "a", labels={"covey.dev/draining": "true"})


def test_the_last_of_a_pairing_is_handed_over_too_early() -> None:
    found = Routed()
    found.history.wanted(engine("prefill", "2"), engine("decode", "1"))
    assert found.see("decode", "1", "b") == ["handed over"]


def test_one_that_is_handed_over_to_a_ready_prefill() -> None:
    found = Routed()
    found.history.wanted(engine("prefill", "2"), engine("decode", "1"))
    assert found.see("prefill", "2", "b", number=1) == []
    assert found.see("decode", "1", "b") == []
    assert found.history.checker.routes.handed_over == 1


def test_what_others_took_a_moment_ago_excuses() -> None:
    found = Routed()
    found.history.wanted(engine("prefill", "2"), engine("decode", "1"))
    assert found.see("prefill", "2", "b", number=1) == []
    assert found.history.delete("0/prefill/1/0", by_operator=False) == []
    assert found.see("decode", "1", "b") == []


def test_engines_that_could_serve_and_are_not_paired() -> None:
    """But for a moment."""
    found = Routed()
    found.history.wait(GRACE + 1)
    found.history.wanted(engine("prefill", "2"), engine("decode", "1"))
    found.see("prefill", "2", "b", number=1)
    found.see("decode", "1", "b")
    found.history.delete("0/prefill/1/0", by_operator=False)
    # Decode stays where nobody is left.
    found.history.wait(GRACE + 1)
    assert found.history.wait(UNPAIRED - 1) == []
    assert [each.rule for each in found.history.wait(2)] == ["refused"]
    assert found.see("decode", "1", "a") == []
    assert found.history.wait(UNPAIRED + 1) == []


NEAR = {"proximity": [{"roles": ["prefill", "decode"], "level": "rack", "mode": "Required"}]}


def test_a_prefill_without_decode_in_its_domain() -> None:
    """Node ``n1`` lies in another rack than ``n0`` and ``n2``."""
    found = Routed(**NEAR)
    assert found.see("decode", "1", "a", number=1) == ["astray"]
    assert found.see("prefill", "1", "a", number=2) == ["astray"]
    assert found.history.checker.routes.in_reach
    assert found.history.delete("0/decode/0/0") == ["out of reach"]


def test_without_required_proximity_a_pair_may_lie_apart() -> None:
    preferred = [NEAR["proximity"][0] | {"mode": "Preferred"}]
    for spec in ({}, {"proximity": preferred}):
        found = Routed(**spec)
        assert found.see("prefill", "1", "a", number=1) == []
        assert found.history.delete("0/prefill/0/0", by_operator=False) == []
        assert not found.history.checker.routes.in_reach
