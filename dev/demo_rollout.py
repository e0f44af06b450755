"""``make demo-rollout``: requests go through two rollouts, and none is lost or mixed.

Engines are an HTTP stand-in (``routed``), all else is real: the control plane, Covey, pods, labels, requests.
``SVG=file`` writes the picture of the documentation. ``make demo-rollout`` puts ``dev`` on the path.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from demo import Stage, heading, say, title
from localcluster import TROUBLES, Cluster, Nodes, binaries, sentence_of
from routed import Traffic
from routed.picture import Moments, draw_lines, draw_svg

_PODS: Final = "/api/v1/namespaces/default/pods?labelSelector=covey.dev/inference=qwen"
_SHAPE: Final = Nodes(blocks=1, racks=2, nodes=2, gpus=8)
_COUNTS: Final = {"prefill": 4, "decode": 6}
#: Seconds of requests before, between and after the rollouts.
_STEADY: Final = 3.0


def main() -> int:
    """Play the story; returns the exit status."""
    try:
        figures = run()
    except TROUBLES as error:
        print(f"error: {sentence_of(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 130
    return int(bool(figures.mixed or figures.lost))


@dataclass(frozen=True)
class Figures:
    """Requests in all, and of them those without an answer, those that were mixed, and those that might have been."""

    requests: int
    lost: int
    mixed: int
    blind: int
    #: Pods of decode that served before and after prefill alone was changed.
    kept: int


def run() -> Figures:
    """Play all acts on a control plane of its own."""
    title("Covey: requests go through a rollout, and prefill of one revision never meets decode of another")
    binaries.ensure()
    heading("A real control plane with 4 simulated nodes of 8 GPUs, and Covey")
    with Cluster() as cluster:
        cluster.start_all(nodes=_SHAPE)
        return play(Stage(cluster))


def play(stage: Stage) -> Figures:
    """Play the acts in their order."""
    heading("(a) Four prefill, six decode, and 25 requests a second through a router that keeps to covey.dev/pairing")
    stage.apply(manifest("1", "1"))
    stage.until("all pods are Ready", lambda: stage.is_ready("qwen"))
    show_pairings(stage)
    moments: list[tuple[float, str]] = []
    traffic = Traffic(stage.cluster, _PODS)
    traffic.fits.add((image("1"), image("1")))
    with traffic:
        time.sleep(_STEADY)
        heading("(b) Both roles get another engine: caches of the two mean nothing to each other")
        change(stage, traffic, moments, "both change", "2", "2")
        heading("(c) Prefill alone changes: decode is handed over by its label, not restarted")
        before = {pod["metadata"]["uid"] for pod in decodes(stage)}
        change(stage, traffic, moments, "prefill alone changes", "3", "2")
        kept = len(before & {pod["metadata"]["uid"] for pod in decodes(stage)})
        show_pairings(stage)
    say(f"{kept} of {len(before)} decode pods are the very same as before.")
    figures = Figures(len(traffic.requests), traffic.lost, traffic.mixed, traffic.blind, kept)
    tell(stage, traffic, moments, figures)
    return figures


def change(
    stage: Stage, traffic: Traffic, moments: list[tuple[float, str]], words: str, prefill: str, decode: str
) -> None:
    """Roll other images out, and wait until nothing else serves."""
    traffic.fits.add((image(prefill), image(decode)))
    moments.append((time.monotonic() - traffic.began, words))
    patch = [
        {"op": "replace", "path": f"/spec/roles/{number}/template/spec/containers/0/image", "value": image(tag)}
        for number, tag in enumerate((prefill, decode))
    ]
    stage.kubectl("patch", "dinf", "qwen", "--type=json", "-p", json.dumps(patch))
    wanted = {"prefill": image(prefill), "decode": image(decode)}

    def rolled() -> bool:
        found = [(pod["metadata"]["labels"]["covey.dev/role"], image_of(pod)) for pod in stage.pods("qwen")]
        return sorted(found) == sorted((role, wanted[role]) for role, count in _COUNTS.items() for _ in range(count))

    stage.until("only the new ones are there", rolled, 120)
    stage.until("all pods are Ready", lambda: stage.is_ready("qwen"))
    time.sleep(_STEADY)


def tell(stage: Stage, traffic: Traffic, moments: Moments, figures: Figures) -> None:
    """Draw the latency, and say what became of the requests."""
    heading("Latency, second by second, and which revisions of prefill and decode answered")
    names = {
        f"{image(prefill)} {image(decode)}": f"prefill {prefill}, decode {decode}"
        for prefill, decode in (("1", "1"), ("2", "2"), ("3", "2"))
    }
    for line in draw_lines(traffic.requests, moments, names):
        print(line, flush=True)
    heading("Summary")
    words = f"{figures.requests} requests through two rollouts: {figures.lost} lost, {figures.mixed} mixed"
    say(f"{words}.")
    say(f"Had each role been chosen without looking at the label, {figures.blind} would have been mixed.")
    if file := os.environ.get("SVG"):
        Path(file).write_text(draw_svg(traffic.requests, moments, names, words))
        say(f"The picture is in {file}.")
    stage.cluster.kubectl("delete", "dinf", "qwen")


def decodes(stage: Stage) -> list[dict[str, Any]]:
    """The pods of decode."""
    return stage.items("pods", "-l", "covey.dev/inference=qwen,covey.dev/role=decode")


def show_pairings(stage: Stage) -> None:
    """Show the labels by which the router goes."""
    labels = "covey.dev/role,covey.dev/pairing,covey.dev/endpoint"
    stage.kubectl("get", "pods", "-l", "covey.dev/inference=qwen", "--no-headers", "-L", labels)


def image(tag: str) -> str:
    """The engine of a revision."""
    return f"registry.test/engine:{tag}"


def image_of(pod: dict[str, Any]) -> str:
    """The engine of a pod."""
    return str(pod["spec"]["containers"][0]["image"])


def manifest(prefill: str, decode: str) -> str:
    """Two roles that serve, whose replicas have a minute for what is under way when they are to go."""
    roles = [
        {
            "name": name,
            "replicas": _COUNTS[name],
            "minReplicas": 1,
            "drainSeconds": 60,
            "template": {
                "spec": {
                    "readinessGates": [{"conditionType": "covey.dev/serving"}],
                    "containers": [
                        {
                            "name": "engine",
                            "image": image(tag),
                            "resources": {"limits": {"nvidia.com/gpu": 2}},
                        }
                    ],
                }
            },
        }
        for name, tag in (("prefill", prefill), ("decode", decode))
    ]
    return json.dumps(
        {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": "qwen", "namespace": "default"},
            "spec": {"topology": {"required": "block"}, "roles": roles},
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
