"""The operator's Kopf handlers: Kopf is the way in for all that people write.

=========  =============================================================================================================
startup    settings: what Kopf must not do (write, scan, end the process), and how often it tries
login      Kopf gets a session of Covey's own connection, with the same credentials and their renewal
event      a DisaggregatedInference, RoleScaler or ClusterTopology was listed, written or deleted: the informer of its kind
           takes it, and its subscriber (``observe.caches``) adds the resources it concerns to the work queue
cleanup    the watches have ended: the log says so, and ``process.kopf_runner`` starts them again unless the process ends
probe      none: ``/healthz`` and ``/readyz`` of the process (``process.main``) say when a watch is deaf
=========  =============================================================================================================

From the queue on it is one pass over one resource: ``reconcile``. Kopf runs in every replica and keeps the stores full;
the replica that holds the lease works the queue. Handlers decide nothing from an event: passes are level-triggered and
look at the store, so that an event that comes twice, late or not at all changes nothing in the end.

Kopf watches these three kinds and nothing else does. What Covey makes of them, and what the cluster is, is watched by
reflectors (``kube.reflector``): thousands of pods, of which a projection is kept and no handler is wanted (decision 8).
Kopf leaves no finalizers, annotations or Events behind: there are event handlers only, its storages store nothing, and
its posting is off.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import kopf

from covey.api import constants as names
from covey.kube.connection import Connection
from covey.observability.logging import get_logger
from covey.operator.observe.caches import Caches
from covey.operator.observe.kopf_session import NoDiffBase, NoProgress, open_session

_log = get_logger(__name__)

REGISTRY: Final = kopf.OperatorRegistry()
#: Kopf wants the name of a finalizer, and sets none where there are event handlers only.
_FINALIZER: Final = f"{names.INFERENCE_GROUP}/never-set"
#: Objects in one answer to a LIST: an object may have 1.4 MB, and a page is in memory as a whole.
_PAGE: Final = 25


@dataclass(frozen=True, slots=True)
class Memo:
    """The process as handlers know it: its connection, the stores that they fill, and the sessions that they opened."""

    connection: Connection
    caches: Caches
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
    settings.watching.chunk_size = _PAGE
    # A worker keeps its last event until it has idled this long; 0 would spin on Python 3.11.
    settings.queueing.idle_timeout = 0.01
    settings.queueing.worker_limit = 32
    settings.persistence.finalizer = _FINALIZER
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()


@kopf.on.login(registry=REGISTRY)
async def login(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    """Log in as Covey's own requests do."""
    connection = memo.connection
    session = open_session(connection, memo.caches.informers)
    memo.sessions.append(session)
    return kopf.AiohttpSession(
        server=connection.server, aiohttp_session=session, default_namespace=connection.namespace
    )


@kopf.on.event(names.INFERENCE_GROUP, names.VERSION, "disaggregatedinferences", registry=REGISTRY)
async def take_inference(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:
    """Take a DisaggregatedInference into the store: a new spec, or its end, adds it to the work queue."""
    memo.caches.inferences.take(event)


@kopf.on.event(names.INFERENCE_GROUP, names.VERSION, "rolescalers", registry=REGISTRY)
async def take_role_scaler(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:
    """Take a RoleScaler into the store: its resource is added to the work queue."""
    memo.caches.scalers.take(event)


@kopf.on.event(names.SCHEDULING_GROUP, names.VERSION, "clustertopologies", registry=REGISTRY)
async def take_topology(event: kopf.RawEvent, memo: Memo, **_: Any) -> None:
    """Take a ClusterTopology into the store: every resource is added to the work queue where its levels are new."""
    memo.caches.topologies.take(event)


@kopf.on.cleanup(registry=REGISTRY)
async def note_end(**_: Any) -> None:
    """Say that nothing is watched now."""
    _log.info("watches ended")
