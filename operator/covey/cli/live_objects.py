"""Reading what ``covey explain`` and ``covey status`` tell about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from covey.api import core
from covey.api.constants import EVICTION_RESPONDER
from covey.api.inference import DisaggregatedInference
from covey.cli.client import connect
from covey.cli.errors import CommandError
from covey.kube.client import Client
from covey.kube.errors import Forbidden, NotFound
from covey.kube.resources import DISAGGREGATED_INFERENCES, EVICTIONS, PREEMPTIONS
from covey.manifests.errors import InputError
from covey.model import podstate
from covey.planning.cluster import list_if_served, read_cluster
from covey.planning.facts import ClusterFacts
from covey.watching.advice import Advice, advise
from covey.watching.preemptions import describe_preemptions
from covey.watching.presence import Lease, find_absences, read_leases
from covey.watching.status_tree import StatusTree, grow
from covey.watching.usage import find_topology_name, whereabouts


@dataclass(frozen=True, slots=True)
class LiveObjects:
    """Some resources of a cluster, and the cluster at that moment."""

    inferences: tuple[DisaggregatedInference, ...]
    facts: ClusterFacts
    #: Of Covey's processes; None where they may not be read. And when all of it was read, in seconds since the epoch.
    leases: tuple[Lease, ...] | None = None
    now: float = 0.0
    #: The API server has Evictions.
    evictions: bool = False
    #: Of the namespace of one resource.
    preemptions: tuple[core.Preemption, ...] = ()

    def trees(self) -> list[StatusTree]:
        """The live tree of each resource."""
        trees = []
        for inference in self.inferences:
            where = inference.metadata.namespace
            groups = [group for group in self.facts.groups if group.metadata.namespace == where]
            pods = [pod for pod in self.facts.pods if pod.metadata.namespace == where]
            trees.append(grow(inference, groups, pods, whereabouts(find_topology_name(inference, groups), self.facts)))
        return trees

    def describe_preemptions(self) -> list[str]:
        """What others have given up for these resources, or are about to."""
        owners = {inference.metadata.uid for inference in self.inferences}
        metas = (group.metadata for group in self.facts.groups)
        roots = {meta.uid for meta in metas if (owner := meta.controller) is not None and owner.uid in owners}
        return describe_preemptions(roots, self.preemptions)

    def absences(self) -> tuple[Advice, ...]:
        """Who does not look after the resources, though somebody should."""
        absences = (
            absence for inference in self.inferences for absence in find_absences(inference, self.leases, self.now)
        )
        return tuple(dict.fromkeys(absences))

    def advice(self) -> tuple[Advice, ...]:
        """The meaning of the reasons of all resources, after who does not look after them."""
        advice = (
            line
            for inference in self.inferences
            for line in advise(
                inference, [pod for pod in self.facts.pods if pod.metadata.namespace == inference.metadata.namespace]
            )
        )
        return tuple(dict.fromkeys((*self.absences(), *advice, *self._without_responder())))

    def _without_responder(self) -> Iterator[Advice]:
        """Yield advice on pods whose Evictions the operator does not answer, where there are Evictions."""
        for inference in self.inferences if self.evictions else ():
            owners = ((pod, pod.metadata.controller) for pod in self.facts.pods if podstate.claims_membership(pod))
            pods = [pod for pod, owner in owners if owner is not None and owner.uid == inference.metadata.uid]
            mute = [
                pod
                for pod in pods
                if all(responder.name != EVICTION_RESPONDER for responder in pod.spec.eviction_responders or ())
            ]
            if mute:
                yield Advice(
                    "NoEvictionResponder",
                    f"{len(mute)} of {len(pods)} pods of {inference.metadata.name} were made before the operator answered "
                    "Evictions (lifecycle.k8s.io): an Eviction of one of them waits on the budget, as kubectl drain does.",
                    "Nothing: pods that are made from now on have it.",
                )


def look(
    name: str | None, namespace: str | None, context: str | None, kubeconfig: str | None, *, everywhere: bool = False
) -> LiveObjects:
    """Read one resource, or all of a namespace, or all there are.

    Raises:
        CommandError: there is none of that name, or the cluster does not answer.
        InputError: the name is empty.
    """
    if name is not None:
        name = name.rpartition("/")[2]  # kubectl prints and takes KIND/NAME
        if not name:
            raise InputError("NAME", "is empty", "give the name of a DisaggregatedInference")
    return asyncio.run(_look(name, namespace, context, kubeconfig, everywhere=everywhere))


async def _look(
    name: str | None, namespace: str | None, context: str | None, kubeconfig: str | None, *, everywhere: bool
) -> LiveObjects:
    async with connect(kubeconfig, context) as client:
        where = namespace or client.namespace
        bodies = (
            [await _one(client, name, where)] if name is not None else await _all(client, None if everywhere else where)
        )
        facts = await read_cluster(client)
        leases = await read_leases(client)
        evictions = await _has_evictions(client, where)
        preemptions = await _list_preemptions(client, where) if name is not None else ()
    return LiveObjects(tuple(map(_understood, bodies)), facts, leases, time.time(), evictions, preemptions)


async def _list_preemptions(client: Client, namespace: str) -> tuple[core.Preemption, ...]:
    """The Preemptions of a namespace; none where nobody may read them, as with the roles of an older release."""
    try:
        return tuple(await list_if_served(client, PREEMPTIONS, core.Preemption, namespace))
    except Forbidden:
        return ()


async def _has_evictions(client: Client, namespace: str) -> bool:
    """Tell whether the API server has Evictions; False where nobody may know."""
    try:
        await client.probe(EVICTIONS, namespace)
    except (NotFound, Forbidden):
        return False
    return True


async def _one(client: Client, name: str, namespace: str) -> dict[str, object]:
    try:
        return await client.get(DISAGGREGATED_INFERENCES, name, namespace)
    except NotFound:
        raise CommandError(f"there is no DisaggregatedInference {namespace}/{name}; is -n the right one?") from None


async def _all(client: Client, namespace: str | None) -> list[dict[str, object]]:
    return await list_if_served(client, DISAGGREGATED_INFERENCES, dict, namespace)


def _understood(body: dict[str, object]) -> DisaggregatedInference:
    try:
        return DisaggregatedInference.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"a resource is not understood by this release: {first['loc']}: {first['msg']}"
        raise CommandError(f"{what}; use a covey as new as the operator") from None
