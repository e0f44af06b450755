"""Choices that let requests to the API server fail, and watches end."""

from __future__ import annotations

import random

from soak.choices import choice
from soak.proxy import OTHERS, REFUSALS
from soak.stage import PROXIED, Stage


@choice("api", 6)
def let_requests_fail(stage: Stage, generator: random.Random) -> str | None:
    if "api" in stage.quiet.disturbed:
        return None
    program, seconds = generator.choice(PROXIED), generator.uniform(2, 8)
    kinds = generator.sample([*REFUSALS, *OTHERS], generator.randint(1, 4))
    shares = {kind: generator.choice([0.05, 0.1, 0.3]) for kind in kinds}
    _begin(stage, seconds)
    stage.proxies[program].trouble.shares.update(shares)
    return f"{program}: {', '.join(f'{kind} {share:.0%}' for kind, share in shares.items())} for {seconds:.1f} s"


@choice("api", 3)
def cut_watches(stage: Stage, generator: random.Random) -> str | None:
    if "api" in stage.quiet.disturbed:
        return None
    programs = generator.choice([PROXIED, *((program,) for program in PROXIED)])
    _begin(stage, 1.0)
    for program in programs:
        stage.proxies[program].cut_watches()
    return f"{' and '.join(programs)}"


@choice("api", 2)
def let_versions_expire(stage: Stage, generator: random.Random) -> str | None:
    if "api" in stage.quiet.disturbed:
        return None
    program, seconds = generator.choice(PROXIED), generator.uniform(1, 4)
    _begin(stage, seconds)
    stage.proxies[program].trouble.expired = 0.5
    stage.proxies[program].cut_watches()
    return f"{program}: half of the new watches are told 410 for {seconds:.1f} s"


def _begin(stage: Stage, seconds: float) -> None:
    stage.quiet.disturb("api")

    def end() -> None:
        for proxy in stage.proxies.values():
            proxy.trouble.clear()
        stage.quiet.settle("api")

    stage.later(seconds, "end the trouble", end)
