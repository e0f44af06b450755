"""The operator's kopf handlers: all of them, and what happens on each.

=========  =============================================================================================================
startup    settings; the topologies are read once, before anything is reconciled
login      kopf gets Covey's own connection, with the same credentials and their renewal
event      a ClusterTopology was written: all of them are read again, and every resource is looked at
cleanup    the process ends, whoever has ended kopf
probe      none: kopf's endpoint exists on the leader alone and always says 200; ``/healthz`` and ``/readyz`` of the
           process (``process.main``) answer for replicas that wait, too, and say when a watch is deaf
=========  =============================================================================================================

kopf watches what people write rarely. It does not watch DisaggregatedInferences, since one watch of them is enough and
it has to be the reflector's (``observe.caches``): kopf never tells of an object that was deleted while its watch was broken,
and the operator would go on creating pods for it; a replica that waits for the lease has no kopf running, and would
begin with a listing. Watching them here as well cost the operator a fifth of its processor time (decision 14).

A ClusterTopology that vanishes unseen does no such harm: handlers decide nothing from what an event says, all of them
are listed, and every ten minutes without being told (``observe.topologies``).
Nothing is written through kopf: no handler here makes it leave finalizers, annotations or Events behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import kopf

from covey.api import constants as names
from covey.kube.connection import Connection
from covey.kube.resources import CLUSTER_TOPOLOGIES
from covey.kube.session import new_session
from covey.operator.observe.topologies import Topologies

REGISTRY: Final = kopf.OperatorRegistry()
_FINALIZER: Final = f"{names.INFERENCE_GROUP}/never-set"


@dataclass(frozen=True, slots=True)
class Memo:
    """What handlers need of the process.

    ``end`` ends the process.
    """

    connection: Connection
    topologies: Topologies
    end: Callable[[], object]


@kopf.on.startup(registry=REGISTRY)
async def start(settings: kopf.OperatorSettings, memo: Memo, **_: Any) -> None:
    """Configure kopf, and read what the first reconcile needs."""
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 1
    settings.persistence.finalizer = _FINALIZER
    settings.execution.max_workers = 1
    # The process ends itself in time; kopf must not kill it.
    settings.process.ultimate_exiting_timeout = None
    memo.topologies.stale()
    await memo.topologies.synced.wait()


@kopf.on.login(registry=REGISTRY)
async def login(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    """A session of Covey's own connection."""
    connection = memo.connection
    session = new_session(connection, user_agent="covey-operator (kopf)")
    return kopf.AiohttpSession(
        server=connection.server, aiohttp_session=session, default_namespace=connection.namespace
    )


@kopf.on.event(CLUSTER_TOPOLOGIES.group, CLUSTER_TOPOLOGIES.version, CLUSTER_TOPOLOGIES.plural, registry=REGISTRY)
async def change_topology(memo: Memo, **_: Any) -> None:
    """Have all topologies read: an event of one says that something has changed, and nothing else is asked of it."""
    memo.topologies.stale()


@kopf.on.cleanup(registry=REGISTRY)
async def finish(memo: Memo, **_: Any) -> None:
    """End the process with kopf: a signal may have reached kopf first."""
    memo.end()
