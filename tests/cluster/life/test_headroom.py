"""Head-room on a real control plane: what the answer says fits, fits; one more waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from api_manifests import Object
from cluster.conftest import AddNodes, Covey
from cluster.serving import Serving, workers
from localcluster import Cluster, eventually


@dataclass(frozen=True)
class Asked(Serving):
    """A namespace whose resources are asked."""

    def ask(self, text: str, name: str = "llm") -> None:
        """As a person does."""
        self.kubectl("annotate", "dinf", name, f"covey.dev/headroom={text}", "--overwrite")

    def told(self, name: str = "llm") -> Object:
        """What the status says of head-room."""
        return dict(self.get("DisaggregatedInference", name).get("status", {}).get("headroom") or {})

    def answer(self, text: str, name: str = "llm") -> dict[str, int]:
        """Ask, and wait for the numbers."""
        self.ask(text, name)
        return self.await_answer(text, name)

    def await_answer(self, text: str, name: str = "llm") -> dict[str, int]:
        """Wait for the numbers."""
        eventually(lambda: self.told(name).get("asked") == text, 120, f"an answer to {text}: {self.told(name)}")
        rows = self.get("DisaggregatedInference", name)["status"]["roles"]
        return {row["name"]: row["maxFeasible"] for row in rows if "maxFeasible" in row}

    def scale(self, role: str, replicas: int) -> None:
        """As an autoscaler does."""
        self.kubectl("scale", "rscale", f"llm-{role}", f"--replicas={replicas}")


@pytest.fixture
def asked(cluster: Cluster, covey: Covey, namespace: str) -> Asked:
    """A new namespace in which all of Covey runs."""
    assert covey
    return Asked(cluster, namespace)


def roles(**prefill: Any) -> list[Object]:
    return [workers("prefill", size=2, **{"scaling": {"mode": "External"}, **prefill}), workers("decode")]


def test_what_fits_is_bound_and_one_more_waits(asked: Asked, nodes: AddNodes) -> None:
    """Two racks of four nodes; the unit has one of them: three nodes are taken, so half a replica more is none."""
    nodes(blocks=1, racks=2, nodes=6)
    asked.create(*roles(), topology={"required": "rack"})
    asked.await_bound(3)
    assert asked.answer("one") == {"prefill": 2, "decode": 4}
    asked.scale("prefill", 2)
    asked.await_bound(5)
    assert asked.answer("two") == {"prefill": 2, "decode": 2}
    asked.scale("prefill", 3)
    eventually(lambda: len(asked.pods(role="prefill")) == 6, 60, "the replica that is too many has its pods")
    assert asked.answer("three") == {"prefill": 2, "decode": 2}
    assert len(asked.bound()) == 5
