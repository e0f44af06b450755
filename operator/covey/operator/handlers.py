"""The operator's Kopf handlers: Kopf is the way in for all that people write.

=========  =============================================================================================================
startup    settings: what Kopf must not do (write, scan, end the process), and how often it tries
login      Kopf gets a session of Covey's own connection, with the same credentials and their renewal
event      a DisaggregatedInference, RoleScaler or ClusterTopology was listed, written or deleted: from its first event on
           the resources that it concerns are added to the work queue (``observe.caches``)
cleanup    the watches have ended: the log says so, and ``process.kopf_runner`` starts them again unless the process ends
probe      none: ``/healthz`` and ``/readyz`` of the process (``process.main``) say when a watch is deaf
=========  =============================================================================================================

From the queue on it is one pass over one resource: ``reconcile``. Kopf runs in every replica; the one that holds the
lease works the queue. Handlers decide nothing from an event: passes are level-triggered and
look at the store, so that an event that comes twice, late or not at all changes nothing in the end.

Kopf watches the metadata of these three kinds, and its event is what has an object acted on. The objects are kept by
reflectors (``observe.triggered``, ``kube.reflector``), as is all that Covey makes and that the cluster is (decision 14).
Kopf leaves no finalizers, annotations or Events behind: there are event handlers only, and its posting is off.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import kopf

from covey.api import constants as names
from covey.kube.client import CHUNK
from covey.kube.connection import Connection
from covey.observability.logging import get_logger
from covey.operator.observe.caches import Caches
from covey.operator.observe.kopf_session import open_session

_log = get_logger(__name__)

REGISTRY: Final = kopf.OperatorRegistry()
#: Kopf wants the name of a finalizer, and sets none where there are event handlers only.
_FINALIZER: Final = f"{names.INFERENCE_GROUP}/never-set"


@dataclass(frozen=True, slots=True)
class Memo:
    """The process as handlers know it: its connection, the objects that they open, and the sessions that they opened."""

    connection: Connection
    caches: Caches
    #: Where Kopf watches; empty means everywhere.
    namespaces: Sequence[str] = ()
    sessions: list[aiohttp.ClientSession] = field(default_factory=list)


@kopf.on.startup(registry=REGISTRY)
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Configure Kopf before it watches anything."""
    # The kinds are known, and so are the namespaces; nothing is posted; the process ends itself in time.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    # Tries have no end, and are at most half a second apart.
    settings.networking.error_backoffs = itertools.repeat(0.5)
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.connect_timeout = 5
    settings.watching.reconnect_backoff = 0.1
    settings.watching.server_timeout = 300
    # A bookmark is due every minute; a connection that died without a word is given up after this.
    settings.watching.inactivity_timeout = 68
    settings.watching.chunk_size = CHUNK
    # A worker keeps its last event until it has idled this long; 0 would spin on Python 3.11.
    settings.queueing.idle_timeout = 0.01
    settings.queueing.worker_limit = 32
    settings.persistence.finalizer = _FINALIZER


@kopf.on.login(registry=REGISTRY)
async def login(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    """Log in as Covey's own requests do."""
    connection = memo.connection
    session = open_session(connection, [kind.resource for kind in memo.caches.triggered], memo.namespaces)
    memo.sessions.append(session)
    return kopf.AiohttpSession(
        server=connection.server, aiohttp_session=session, default_namespace=connection.namespace
    )


@kopf.on.event(names.INFERENCE_GROUP, names.VERSION, "disaggregatedinferences", registry=REGISTRY)
async def expand_inference(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:
    """Add a DisaggregatedInference to the work queue, now and at each new spec, and at its end."""
    memo.caches.inferences.trigger(event)


@kopf.on.event(names.INFERENCE_GROUP, names.VERSION, "rolescalers", registry=REGISTRY)
async def scale_role(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:
    """Add the resource of a RoleScaler to the work queue, now and at each change."""
    memo.caches.scalers.trigger(event)


@kopf.on.event(names.SCHEDULING_GROUP, names.VERSION, "clustertopologies", registry=REGISTRY)
async def apply_topology(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:
    """Add every resource to the work queue, now and whenever the levels of a ClusterTopology are others."""
    memo.caches.topologies.trigger(event)


@kopf.on.cleanup(registry=REGISTRY)
async def note_end(**_: Any) -> None:
    """Say that nothing is watched now."""
    _log.info("watches ended")
