"""How large the UI's view of a large cluster is, and what it costs: objects in, state and changes out, without a server.

``PYTHONPATH=operator:dev:tests python -m bench.ui``: 5,000 nodes and 10,000 pods, in 50 resources.
"""

from __future__ import annotations

import resource
import time
import zlib
from typing import Any, Final

import msgspec

from builders.files import cluster, inference, role
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.compile import compile_inference
from covey.manifests.documents import convert
from covey.operator.model.objects import Inference
from covey.ui.view_state import ViewBuilder

RESOURCES: Final = 50
REPLICAS: Final = 100


def main() -> None:
    """Print what was measured."""
    nodes = [convert(each, core.Node) for each in cluster(*[25] * 10, blocks=20)]
    things: list[Any] = list(nodes)
    for number in range(RESOURCES):
        things += _resource(number, [node.metadata.name for node in nodes])
    before = _megabytes()
    board = ViewBuilder()
    began = time.perf_counter()
    for thing in things:
        board.update(thing)
    parts = board.parts()
    _say("drawn", began, f"{len(parts.nodes):,} nodes, {len(parts.pods):,} pods, {_megabytes() - before:.0f} MB more")
    board.change()
    began = time.perf_counter()
    whole = msgspec.json.encode([parts.nodes, parts.gangs, parts.pods, parts.waiting])
    _say("encoded", began, f"{len(whole) / 1e6:.2f} MB")
    began = time.perf_counter()
    _say("packed", began, f"{len(zlib.compress(whole, 6)) / 1e6:.2f} MB")
    pods = [each for each in things if isinstance(each, core.Pod)]
    for count in (1, 100, len(pods)):
        began = time.perf_counter()
        for pod in pods[:count]:
            meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            board.update(msgspec.structs.replace(pod, metadata=meta), pod)
        change = msgspec.json.encode(board.change())
        _say(f"{count:,} pods changed", began, f"{len(change) / 1e6:.3f} MB")


def _resource(number: int, nodes: list[str]) -> list[Any]:
    name = f"llm-{number}"
    body = inference(name, role("prefill", REPLICAS, 10), role("decode", REPLICAS, 10), namespace="default")
    body["metadata"] |= {"uid": name, "creationTimestamp": f"2026-01-01T00:00:{number:02d}Z"}
    found: list[Any] = [convert(body, Inference)]
    compiled = compile_inference(DisaggregatedInference.model_validate(body)).objects()
    for place, each in enumerate(compiled):
        each["metadata"]["uid"] = each["metadata"]["name"]
        if each["kind"] == "Pod":
            each["spec"] |= {"nodeName": nodes[(number * 2 * REPLICAS + place) % len(nodes)], "schedulingGates": []}
            each["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            found.append(convert(each, core.Pod))
        elif each["kind"].endswith("PodGroup"):
            found.append(convert(each, core.Group))
    return found


def _say(what: str, began: float, more: str) -> None:
    print(f"{what}: {time.perf_counter() - began:.3f} s, {more}")


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
