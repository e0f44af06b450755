"""Units of a resource as their surplus would be planned now: of which head-room and exchange ask for more replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from covey.admission import gangs
from covey.admission.gangs import UnplannableError
from covey.admission.growth import Site
from covey.admission.queue import Entry, Want
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.placement.model import PodRequest, Shape
from covey.scheduler.cache import Cache
from covey.scheduler.queue import Queueing
from covey.scheduler.reservations import Reservations


class Sites:
    """Finds the units of a resource, and what would be asked of the planner for each."""

    def __init__(self, cache: Cache, queueing: Queueing, reservations: Reservations) -> None:
        self._cache = cache
        self._queueing = queueing
        self._reservations = reservations

    def of(self, units: Iterable[Unit]) -> Iterator[Site]:
        """Units as their surplus would be planned now.

        Raises:
            UnplannableError: one of them asks for something that the topology or the planner does not have.
        """
        for unit in units:
            kept, topology, around = self._queueing.around(unit)
            if isinstance(topology, UnplannableError):
                raise topology
            gang = gangs.build_gang(unit, topology, self._cache.capacity.shape, around)
            entry = Entry(unit, Want.NOTHING, replace(kept, topology=topology), gang)
            asked, _ = self._reservations.confine(self._queueing.gang_beside_siblings(entry), surplus=True)
            yield Site(asked, lacks=bool(unit.absent))

    def units_of(self, root: core.Group) -> Iterator[Unit]:
        """The units of the resource that a root belongs to."""
        owner, meta = root.metadata.controller, root.metadata
        keys = self._cache.index.roots_of(owner.uid) if owner else [Key(root.kind, meta.namespace, meta.name)]
        for key in keys:
            unit = self._cache.index.unit(key) if key.namespace == meta.namespace else None
            if unit is not None and unit.root.metadata.deletion_timestamp is None:
                yield unit

    def shape(self, request: PodRequest) -> Shape:
        """A further pod has ephemeral volumes of its own, wherever those of its model are."""
        pod = self._cache.index.pod(request.key)
        if pod is None or not any(volume.ephemeral is not None for volume in pod.spec.volumes or ()):
            return request.shape
        shared = tuple(volume for volume in pod.spec.volumes or () if volume.ephemeral is None)
        # Without its UID it is no pod that the cache knows.
        meta = msgspec.structs.replace(pod.metadata, uid="")
        spec = msgspec.structs.replace(pod.spec, volumes=shared)
        return self._cache.capacity.shape(msgspec.structs.replace(pod, metadata=meta, spec=spec))
