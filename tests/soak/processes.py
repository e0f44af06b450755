"""Choices that end processes, let them stand still, or take their lease."""

from __future__ import annotations

import random
from typing import Final

from soak.choices import choice
from soak.stage import Stage
from soak.supervision import KILLABLE, OPERATOR, SCHEDULER

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/{}"
_OWN: Final = {OPERATOR: "covey-operator", SCHEDULER: "covey-planner"}
#: Whose end costs everybody else most comes less often.
_WEIGHTS: Final = {
    OPERATOR: 5,
    SCHEDULER: 5,
    "kube-scheduler": 4,
    "default-scheduler": 1,
    "kube-controller-manager": 2,
    "kube-apiserver": 2,
    "etcd": 1.5,
    "kwok": 0.5,
}


def _process(stage: Stage, generator: random.Random, names: tuple[str, ...]) -> str | None:
    """One that works, while most others do."""
    found = [name for name in names if name not in stage.down]
    if not found or len(stage.down) >= 2:
        return None
    return generator.choices(found, [_WEIGHTS[name] for name in found])[0]


def _seconds(generator: random.Random) -> float:
    return generator.choice([0.0, generator.uniform(0.2, 1.5), generator.uniform(1, 4)])


@choice("processes", 8)
def kill_a_process(stage: Stage, generator: random.Random) -> str | None:
    name = _process(stage, generator, KILLABLE)
    if name is None:
        return None
    seconds = _seconds(generator)
    stage.kill(name, seconds)
    lease = _OWN.get(name)
    if lease and generator.random() < 0.7:
        # As if the lease had run out: otherwise every second storm would be spent waiting for that.
        stage.api("DELETE", _LEASES.format(lease))
        return f"{name} for {seconds:.1f} s, and its lease is gone"
    return f"{name} for {seconds:.1f} s"


@choice("processes", 1)
def kill_covey(stage: Stage, generator: random.Random) -> str | None:
    names = (OPERATOR, SCHEDULER, "kube-scheduler")
    if stage.down:
        return None
    for name in generator.sample(names, 3):
        stage.kill(name, _seconds(generator))
    for lease in _OWN.values():
        stage.api("DELETE", _LEASES.format(lease))
    return "all three at once"


@choice("processes", 2)
def pause_a_process(stage: Stage, generator: random.Random) -> str | None:
    name = _process(stage, generator, (OPERATOR, SCHEDULER, "kube-scheduler"))
    if name is None:
        return None
    seconds = generator.uniform(0.5, 5)
    stage.pause(name, seconds)
    return f"{name} for {seconds:.1f} s"


@choice("processes", 2)
def take_a_lease(stage: Stage, generator: random.Random) -> str | None:
    """Somebody else leads for a moment: who led ends, and is started again."""
    name = _process(stage, generator, (OPERATOR, SCHEDULER))
    if name is None:
        return None
    path = _LEASES.format(_OWN[name])
    stage.quiet.disturb(name)
    stage.down.add(name)
    stage.api("PATCH", path, {"spec": {"holderIdentity": "somebody-else"}})
    seconds = generator.uniform(3, 6)
    stage.later(seconds, f"give the lease back of {name}", lambda: stage.api("DELETE", path))
    return f"of {name} for {seconds:.1f} s"
