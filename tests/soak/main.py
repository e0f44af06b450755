"""``make soak``: storms of choices on a real control plane, with a calm after each; nothing may break at any moment.

``--seed N`` decides every choice, ``--seconds S`` how long it goes on. Every choice is printed with its time and number.
It exits with 1 when anything was violated, or does not come to rest; the logs then stay.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from localcluster import TROUBLES, Cluster, NotReachedError, sentence_of
from soak import choices, contention, deaths, edits, hostile, nodes, priorities, processes, strangers, tenants, troubles
from soak.calm import (
    LEASES,
    OBJECTS,
    ORPHAN,
    UNSTARTED,
    Listed,
    leaks,
    unled,
    unprotected,
    unreachable,
    unsettled,
    waits_honestly,
)
from soak.checker import Checker
from soak.claims import describe_claims
from soak.facts import Owner
from soak.kubelet import Kubelet
from soak.room import overlooked
from soak.settings import KINDS, Kind
from soak.stage import Stage
from soak.supervision import SCHEDULER

#: What registers choices; a module of choices is added here.
MODULES: Final = (contention, deaths, edits, hostile, nodes, priorities, processes, strangers, tenants, troubles)
#: Seconds of a storm, between two choices, and in which everything comes to rest after it.
STORM: Final = (35.0, 60.0)
PAUSE: Final = (0.05, 0.9)
REST: Final = 150.0
#: Seconds of that after which programs of others are started anew that do not do what only they can do: before a replica
#: counts as torn. The garbage collector forgets an owner that was deleted while the API server was restarted.
NUDGE: Final = 30.0
FORGOTTEN: Final = {"kube-controller-manager": ORPHAN, "kwok": UNSTARTED}
#: Seconds for which everything must stay as it is.
STILL: Final = 2.0


@dataclass
class Result:
    """What a soak came to."""

    seed: int
    steps: int = 0
    chosen: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    rests: list[float] = field(default_factory=list)
    waited: int = 0
    #: How often a program of others had to be started anew, by its name.
    nudged: Counter[str] = field(default_factory=Counter)
    #: How often a process has ended by itself, as with a lost lease, by its name.
    ended: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    events: int = 0
    binds: int = 0
    pins: int = 0
    given_up: int = 0
    quiet: float = 0.0
    gaps: int = 0
    #: Resources at rest that choices of tenants met, all choices together.
    rested: int = 0
    #: Gangs of tenants for which room was kept.
    kept: int = 0
    #: Claims, and what was taken for them, in words.
    claims: str = ""
    #: What routers could do, in words.
    routes: str = ""

    @property
    def faults(self) -> int:
        """Choices and requests that were hit."""
        return self.steps + sum(self.injected.values())

    def told(self) -> str:
        """The summary."""
        rests = sorted(self.rests) or [0.0]
        hit = sum(self.injected.values())
        calm = f"came to rest {len(self.rests)} times: p50 {rests[len(rests) // 2]:.1f} s, max {rests[-1]:.1f} s"
        judged = (
            f"{self.pins} pods let go, {self.binds} bound, {self.given_up} serving replicas given up by the operator"
        )
        checked = f"{self.events} events were checked: {judged}; {self.quiet:.0f} s were quiet"
        rows = [
            f"seed {self.seed}: {self.faults} faults in {self.seconds:.0f} s, {self.steps} choices and {hit} requests hit",
            *(f"  {count:>5}  {name}" for name, count in sorted(self.chosen.items())),
            *(f"  {count:>5}  requests: {name}" for name, count in sorted(self.injected.items())),
            f"{checked}; {self.gaps} lists stood for missed events",
            f"tenants met {self.rested} resources at rest, which may lose nothing to them; room was kept for {self.kept} gangs",
            self.claims,
            self.routes,
            f"{calm}; {self.waited} times a resource waited for room and said so",
            *(
                f"started anew, for it had forgotten what it had to do: {name}, {n} times"
                for name, n in self.nudged.items()
            ),
            *(f"ended by itself: {name}, {n} times" for name, n in self.ended.items()),
            f"violations: {len(self.problems)}",
            *(f"  {each}" for each in self.problems),
        ]
        return "\n".join(rows)


class Soak:
    """One run.

    Args:
        cluster: A control plane that runs.
        seed: Decides every choice.
        kinds: The resources.
        storms: The storms to draw from.
    """

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        kinds: tuple[Kind, ...] = KINDS,
        storms: Sequence[str] = tuple(choices.STORMS),
    ) -> None:
        self._generator = random.Random(seed)
        self._checker = Checker()
        self._started = time.monotonic()
        self._result = Result(seed)
        self._stage = Stage(cluster, self._checker, random.Random(seed + 1), self._say, kinds)
        self._kubelet = Kubelet(self._stage)
        self._kinds = kinds
        self._storms = storms

    def run(self, seconds: float) -> Result:
        """Storm, rest, and again until the time is over; then everything small, and rest."""
        stage, result = self._stage, self._result
        with stage.running():
            for kind in self._kinds:
                stage.create(kind)
            try:
                self._rest("start")
                end = time.monotonic() + seconds
                while time.monotonic() < end and not result.problems:
                    self._storm(min(end, time.monotonic() + self._generator.uniform(*STORM)))
                    self._rest(f"step {result.steps}")
                if not result.problems:
                    self._end()
            except TROUBLES as error:
                self._fail(f"step {result.steps}: {type(error).__name__} {sentence_of(error)}")
            finally:
                result.quiet = stage.quiet.now()
                result.gaps = stage.watching.gaps
                result.nudged, result.ended, result.kept = stage.nudged, stage.ended, len(stage.kept)
                for proxy in stage.proxies.values():
                    result.injected.update(proxy.injected)
        checker = self._checker
        result.claims = describe_claims(checker.claims, checker.binds)
        result.routes = checker.routes.describe()
        result.events, result.binds = checker.events, checker.binds
        result.pins, result.given_up = checker.pins, checker.given_up
        result.seconds = time.monotonic() - self._started
        return result

    def _storm(self, end: float) -> None:
        storm = self._generator.choice(self._storms)
        self._say(f"storm: {storm}")
        while time.monotonic() < end and not self._result.problems:
            self._step(storm)
            until = time.monotonic() + self._generator.uniform(*PAUSE)
            while time.monotonic() < until:
                self._look()
                time.sleep(0.05)

    def _step(self, storm: str) -> None:
        for _ in range(10):
            chosen = choices.draw(storm, self._generator)
            rested = len(self._checker.world.rests.settled)
            told = chosen.do(self._stage, self._generator)
            if told is not None:
                break
        else:
            return
        self._result.steps += 1
        self._result.rested += rested if chosen.group == "tenants" else 0
        self._result.chosen[chosen.name] += 1
        self._say(f"#{self._result.steps} {chosen.name}: {told}")

    def _look(self) -> None:
        stage = self._stage
        stage.run_due()
        stage.look_after()
        self._kubelet.look()
        if SCHEDULER in stage.down:
            with stage.watching.lock:
                self._checker.claims.begin_anew()
        stage.watching.tick()
        self._collect()

    def _collect(self) -> None:
        with self._stage.watching.lock:
            found, self._checker.violations = self._checker.violations, []
        told, self._stage.problems = self._stage.problems, []
        for problem in (*found, *told):
            self._result.problems.append(f"seed {self._result.seed}, step {self._result.steps}: {problem}")

    def _rest(self, where: str) -> None:
        """Put everything right, leave it alone, and wait until all is as it is wanted."""
        self._say(f"calm after {where}")
        self._stage.heal()
        begun = time.monotonic()
        amiss, waiting = self._settle(begun + REST, frozenset())
        if self._result.problems:
            return  # found meanwhile, so nothing is waited for
        if amiss:
            self._fail(f"{where}: not at rest after {REST:.0f} s: {'; '.join(amiss[:12])}")
            return
        self._stage.read_logs()
        self._result.rests.append(time.monotonic() - begun - STILL)
        self._say(f"at rest after {self._result.rests[-1]:.1f} s")
        if waiting:
            self._doubt(where, waiting)
        self._check_foreign(where)

    def _settle(self, deadline: float, refused: frozenset[Owner]) -> tuple[list[str], frozenset[Owner]]:
        """Wait until nothing is amiss for a while; what is, and who waits for room."""
        since, amiss, waiting, nudged = 0.0, ["nothing was seen"], frozenset[Owner](), set[str]()
        patient = deadline - REST + NUDGE
        while time.monotonic() < deadline:
            self._look()
            if self._result.problems:
                break
            listed = self._list()
            waiting = frozenset(
                owner
                for owner, each in listed.resources.items()
                if owner not in refused and waits_honestly(each, [p for p in listed.pods if p.owner_uid == each.uid])
            )
            amiss = [*unsettled(listed, waiting=waiting), *leaks(listed), *unprotected(listed)]
            amiss += [*unreachable(listed), *overlooked(listed)]
            with self._stage.watching.lock:
                amiss += self._checker.claims.standing
            leases = self._stage.api("GET", LEASES)
            amiss += unled(leases["items"] if leases else (), time.time())
            since = 0.0 if amiss else since or time.monotonic()
            for program, said in FORGOTTEN.items():
                late = next((each for each in amiss if said in each and time.monotonic() > patient), None)
                if late is not None and program not in nudged:
                    nudged.add(program)
                    self._stage.nudge(program, late)
            # Who waits may be helped yet by what is still on its way.
            if since and time.monotonic() - since > (3 * STILL if waiting else STILL):
                return [], waiting
            time.sleep(0.3)
        return amiss, waiting

    def _doubt(self, where: str, waiting: frozenset[Owner]) -> None:
        """Who waits must wait for a scheduler that has just been started, too: else he had been forgotten."""
        self._result.waited += len(waiting)
        before = {pod.uid for pod in self._list().pods if pod.node and pod.live}
        made = self._checker.claims.made
        self._say(f"waits for room: {', '.join(f'{owner.namespace}/{owner.name}' for owner in sorted(waiting))}")
        stage = self._stage
        stage.kill(SCHEDULER, 0.0)
        stage.api("DELETE", "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/covey-planner")
        stage.heal()
        end = time.monotonic() + 15
        while time.monotonic() < end:
            self._look()
            pods = self._list().pods
            if before - {pod.uid for pod in pods if pod.live}:
                return  # a replica has given up its room meanwhile, as a rollout that waits for room does after a while
            late = [pod for pod in pods if pod.node and pod.uid not in before]
            # One that had looked for a claim in vain waits longer each time, and another process looks at once.
            if late and self._checker.claims.made == made:
                self._fail(f"{where}: {late[0].name} had a place, but only a new scheduler process saw it")
                return
            time.sleep(0.5)

    def _check_foreign(self, where: str) -> None:
        """Nobody of ours has touched what only looks like ours."""
        with self._stage.watching.lock:
            condemned = set(self._checker.world.condemned)
        for path in self._stage.foreign:
            parts = path.split("/")
            namespace, kind, name = parts[-3], parts[-2], parts[-1]
            if kind == "pods" and (namespace, name) in condemned:
                self._fail(f"{where}: the operator has deleted the foreign pod {path}")
            elif kind != "pods" and self._stage.api("GET", path) is None:
                self._fail(f"{where}: the foreign object {path} is gone")

    def _end(self) -> None:
        """Everything as at the beginning, which has room whatever else there is; then nothing at all."""
        stage = self._stage
        self._say("end: everything as at the beginning")
        stage.heal()
        for namespace, name in stage.strangers:
            stage.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        stage.strangers.clear()
        for kind in self._kinds:
            owner = Owner(kind.namespace, kind.name)
            stage.write(owner, dict(kind.spec) | {"suspend": False}) if owner in stage.specs else stage.create(kind)
        amiss, _ = self._settle(time.monotonic() + REST, frozenset(Owner(k.namespace, k.name) for k in self._kinds))
        if self._result.problems:
            return
        if amiss:
            self._fail(f"end: not at rest after {REST:.0f} s: {'; '.join(amiss[:12])}")
            return
        self._say("end: everything is deleted")
        for owner in list(stage.specs):
            stage.delete(owner)
        deadline, left = time.monotonic() + REST, ["unknown"]
        while left and time.monotonic() < deadline:
            self._look()
            listed = self._list()
            left = [*map(str, listed.resources), *leaks(listed)]
            time.sleep(0.3)
        stage.read_logs()
        self._collect()
        if left:
            self._fail(f"end: after everything was deleted there are left {left[:12]}")

    def _list(self) -> Listed:
        stage = self._stage

        def items(path: str) -> list[dict[str, object]]:
            return list((stage.api("GET", path) or {"items": []})["items"])

        return Listed.of(
            items("/apis/inference.covey.dev/v1alpha1/disaggregatedinferences"),
            items("/api/v1/pods"),
            {kind: items(path) for kind, path in OBJECTS.items()},
            items("/api/v1/nodes"),
        )

    def _fail(self, problem: str) -> None:
        self._say(f"PROBLEM {problem}")
        self._result.problems.append(f"seed {self._result.seed}, {problem}")

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:7.1f} {text}", flush=True)


def soak(seed: int, seconds: float, storms: Sequence[str], directory: Path | None = None) -> Result:
    """Run a soak on a control plane of its own."""
    with Cluster(directory, keep=directory is not None) as cluster:
        return Soak(cluster, seed, storms=storms).run(seconds)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser("soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000), help="drawn when left out")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--storm", action="append", choices=choices.STORMS, help="of this kind only; may be given again"
    )
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="covey-soak-"))
    print(f"seed {options.seed}, {options.seconds:.0f} s, logs in {directory / 'logs'}", flush=True)
    try:
        result = soak(options.seed, options.seconds, options.storm or tuple(choices.STORMS), directory)
    except (*TROUBLES, NotReachedError) as error:
        print(f"error: {sentence_of(error)}", file=sys.stderr)
        return 1
    print(result.told())
    if result.problems:
        print(f"the logs are in {directory / 'logs'}; again: make soak ARGS='--seed {options.seed}'")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
