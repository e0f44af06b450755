"""How long the guard takes to answer, as a caller on one kept-alive connection sees it: like kube-scheduler's."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPSConnection
from typing import Any, Final

from attached import Attachment

CALLS: Final = 500


@dataclass(frozen=True)
class Answered:
    """Milliseconds of the calls for one pod, of which ``nodes`` names were sent."""

    nodes: int
    median: float
    p99: float


def ask_guard(scheduler: Attachment, pod: Mapping[str, Any], names: Sequence[str]) -> Answered:
    """Ask about a pod again and again, from an otherwise idle machine."""
    port = int(scheduler.process.url.rpartition(":")[2])
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=scheduler.caller.client_context())
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": list(names)})
    taken = []
    for _ in range(CALLS):
        started = time.perf_counter()
        connection.request("POST", "/guard/filter", body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            response.read()
        taken.append(1000 * (time.perf_counter() - started))
    connection.close()
    return Answered(len(names), statistics.median(taken), statistics.quantiles(taken, n=100)[98])
