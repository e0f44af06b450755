"""Asks the API server what it thinks of the pods, before anything is created.

The CRD stores templates unread. A strict dry run of a leader and a worker of each role gives the API server's own
answer: unknown fields, wrong types, invalid values, admission policies. It is asked once for a revision; a refusal is
remembered, one that may pass without a change of the template for a while, which doubles. A revision that has been
stored was accepted, and is not asked about again while anything of the resource is there.

Of pods that claim devices the claims are judged, too, where Covey counts them (``devices``).

The answer also says the priority of the pods, which only the API server knows: it fills it in from their class.

Many resources may have one template. A resource that asks while the same is being asked in its namespace gets the same
answer, and an acceptance holds for a minute for all of them. Should it be wrong for one, creating its pods says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.compile import Slot, Tree
from covey.compile.identity import hostname
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import ApiError, BadRequest, Forbidden, Invalid
from covey.operator.model.problem import Problem, of_pod_refusal, retry_delay
from covey.operator.model.template_faults import find_template_faults
from covey.operator.observe.devices import find_claim_problem

#: Seconds that an accepted template counts as accepted for other resources, too.
_SHARED: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Sample:
    """A pod to ask about. ``content`` is equal for pods that differ only in whose they are.

    ``shared`` are the claims that several pods would name; None where its claims are not judged.
    """

    role: str
    body: dict[str, Any]
    content: tuple[object, ...]
    shared: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The answer about a revision; it holds ``until`` a time of the clock. ``attempt`` counts earlier questions."""

    revision: str
    problem: Problem | None
    until: float
    attempt: int


class _AdmittedSpec(core.Read, frozen=True):
    priority: int | None = None


class _AdmittedPod(core.Read, frozen=True):
    """The part of a pod that is read once the API server would take it."""

    spec: _AdmittedSpec


class TemplateCheck:
    """Remembers the last verdict on each resource, by UID.

    Args:
        client: to the API server.
        clock: monotonic, seconds.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._verdicts: dict[str, _Verdict] = {}
        #: By the name of their PriorityClass, None for pods that name none: the priority that the API server gave pods last.
        self._priorities: dict[str | None, int] = {}
        #: Answers by content, and until when each is shared.
        self._answers: dict[tuple[object, ...], tuple[float, asyncio.Task[Problem | None]]] = {}

    async def find_problem(self, tree: Tree, *, counted: bool) -> Problem | None:
        """Report what the API server has against the pods of a tree; None when it would take them.

        Args:
            tree: what is wanted.
            counted: Covey counts the devices that its pods claim, and refuses what it cannot count.

        Raises:
            KubeError: when it could not be asked.
        """
        known = self._verdicts.get(tree.owner.uid)
        if known is not None and known.revision != tree.revision.hash:
            known = None
        if known is not None and self._clock() < known.until:
            return known.problem
        # No pod can be made from a template of other types, and nobody says better what is wrong with it.
        problem = await self._first_problem(_misshapen_samples(tree)) or await self._first_problem(
            _samples(tree, counted=counted)
        )
        attempt = known.attempt + 1 if known is not None else 0
        passes = problem is not None and problem.retry
        # Claims are judged again when all pods have gone and are to come back.
        holds = _SHARED if problem is None and any(tree.revision.pod_claims) else float("inf")
        until = self._clock() + (retry_delay(attempt) if passes else holds)
        self._verdicts[tree.owner.uid] = _Verdict(tree.revision.hash, problem, until, attempt)
        return problem

    def find_priority(self, priority_class: str | None) -> int:
        """Find the priority of pods of a class; 0 where no such pod has been asked about since this process began."""
        return self._priorities.get(priority_class, 0)

    async def _first_problem(self, asked: Iterable[_Sample]) -> Problem | None:
        samples = tuple(asked)
        answers = await asyncio.gather(*map(self._answer, samples))
        return next(
            (_of_role(sample.role, problem) for sample, problem in zip(samples, answers, strict=True) if problem), None
        )

    def forget(self, uid: str) -> None:
        """Forget a resource that is gone."""
        self._verdicts.pop(uid, None)

    async def _answer(self, sample: _Sample) -> Problem | None:
        """Return the answer about a content, asked once for all that want to know it now."""
        now = self._clock()
        until, asking = self._answers.get(sample.content, (now, None))
        if asking is None or until <= now:
            self._answers = {content: known for content, known in self._answers.items() if known[0] > now}
            asking = asyncio.create_task(self._ask(sample))
            self._answers[sample.content] = (now + _SHARED, asking)
            asking.add_done_callback(partial(self._forget_refusal, sample.content))
        # A resource that gives up waiting does not end it for the others.
        return await asyncio.shield(asking)

    def _forget_refusal(self, content: tuple[object, ...], asked: asyncio.Task[Problem | None]) -> None:
        """Forget an answer unless it is an acceptance: only that is shared with resources that come later."""
        accepted = not asked.cancelled() and asked.exception() is None and asked.result() is None
        if not accepted and self._answers.get(content, (0.0, None))[1] is asked:
            del self._answers[content]

    async def _ask(self, sample: _Sample) -> Problem | None:
        problem = await self._ask_about_pod(sample.body)
        claims = sample.body["spec"].get("resourceClaims")
        if problem or not claims or sample.shared is None:
            return problem
        return await find_claim_problem(self._client, sample.body["metadata"]["namespace"], claims, sample.shared)

    async def _ask_about_pod(self, body: dict[str, Any]) -> Problem | None:
        try:
            pod = await self._client.create(resources.PODS, body, dry_run=True, strict=True, type=_AdmittedPod)
        except (BadRequest, Invalid, Forbidden) as error:
            problem = of_pod_refusal(error)
            if problem is None or problem.reason == names.REASON_QUOTA_EXCEEDED:
                # Quota is counted when pods are really created.
                return None
            return _with_field(problem, body["spec"])
        except ApiError as error:
            if "failed calling webhook" in error.message:
                return None
            raise
        self._priorities[body["spec"].get("priorityClassName")] = pod.spec.priority or 0
        return None


def _with_field(problem: Problem, spec: Mapping[str, Any]) -> Problem:
    """The problem, said by its field where Covey knows it: of quantities the API server does not say where they stand."""
    if problem.reason != names.REASON_TEMPLATE_REJECTED or not _is_of_types(spec):
        return problem
    fault = next(find_template_faults(spec), None)
    if fault is None:
        return problem
    path, what, instead = fault
    if "quantities must match" in problem.message:
        return replace(problem, message=f"spec.{path}: {what}; {instead}")
    return replace(problem, message=f"{problem.message}; spec.{path}: {what}; {instead}")


def _misshapen_samples(tree: Tree) -> Iterator[_Sample]:
    """Samples of templates whose fields are of other types than a pod's, each as it is."""
    for name, role in tree.revision.roles.items():
        for index in range(min(role.size, 2)):
            spec = role.template_of(index)["spec"]
            if not _is_of_types(spec):
                metadata = tree.owner.metadata(f"{tree.owner.name}-{hostname(Slot(0, name, 0, index))}-check", {})
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                yield _Sample(name, body, (tree.owner.namespace, role.hash, index))


def _is_of_types(spec: Mapping[str, Any]) -> bool:
    try:
        msgspec.convert({"metadata": {}, "spec": spec}, core.Pod, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _samples(tree: Tree, *, counted: bool) -> Iterator[_Sample]:
    shared = frozenset(_shared_claims(tree)) if counted else None
    for name, role in tree.revision.roles.items():
        for index in range(min(role.size, 2)):
            slot = Slot(0, name, 0, index)
            body = tree.pods.build_named(slot, f"{tree.owner.name}-{hostname(slot)}-check")
            spec = body["spec"]
            # The hash stands for the role's template and for what it is made into.
            taken = (spec["schedulerName"], spec.get("priorityClassName"))
            yield _Sample(name, body, (tree.owner.namespace, role.hash, index, *taken, shared), shared)


def _shared_claims(tree: Tree) -> Iterator[str]:
    """Yield the claims that several pods of a tree name."""
    if not any(claim.get("resourceClaimName") for claim in tree.revision.pod_claims):
        return
    roles = tree.revision.roles
    specs = (roles[slot.role].template_of(slot.index)["spec"] for slot in tree.slots)
    # The API server has not said yet whether they are texts.
    named = Counter(
        str(claim.get("resourceClaimName") or "") for spec in specs for claim in spec.get("resourceClaims") or ()
    )
    yield from (name for name, count in named.items() if name and count > 1)


def _of_role(role: str, problem: Problem) -> Problem:
    if problem.reason != names.REASON_TEMPLATE_REJECTED:
        return replace(problem, message=f"role {role}: {problem.message}")
    then = "it is tried again" if problem.retry else "correct its template"
    message = f"the API server refuses the pods of role {role}: {problem.message}; {then}"
    return Problem(problem.reason, message, retry=problem.retry)
