"""Whether an operator leads: nobody else makes successors of lost pods.

Read from the operator's Lease, and only while somebody asks (``look``, every few seconds). It is judged as every
candidate judges one (``kube.lease``): by whether it changes, on this machine's clock. Where there is no Lease the
operator runs without leader election, and leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from covey.api.constants import OPERATOR
from covey.kube.client import Client
from covey.kube.errors import Forbidden, KubeError, NotFound
from covey.kube.lease import Observation
from covey.kube.resources import LEASES
from covey.observability.logging import get_logger

log = get_logger(__name__)

#: Seconds between two looks; the lease is renewed as often.
LOOK: Final = 2.0
#: Seconds after which an observation is too old to tell who renews it.
STALE: Final = 5 * LOOK
ALWAYS: Final = float("-inf")


class OperatorLease:
    """The operator's Lease.

    Args:
        client: to the API server.
        namespace: of the Lease.
        clock: monotonic seconds.
    """

    def __init__(self, client: Client, namespace: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._observed: Observation | None = None
        self._looked = ALWAYS
        self._may_read = True
        #: Since when an operator leads (monotonic seconds), as far as was looked; None while none is known to.
        self.led_since: float | None = None

    async def look(self) -> None:
        """Read the Lease once; where that is forbidden an operator is taken to lead."""
        lease: dict[str, Any] | None
        try:
            lease = await self._client.get(LEASES, OPERATOR, self._namespace)
        except NotFound:
            lease = None
        except Forbidden as error:
            if self._may_read:
                log.warning(
                    "operator's lease not read: capacity without successors is held for seconds", error=str(error)
                )
            self._may_read, lease = False, None
        except KubeError as error:
            log.warning("operator's lease not reached", error=str(error))
            return
        self.observe(lease, self._clock())

    def observe(self, lease: dict[str, Any] | None, now: float) -> None:
        """Note the Lease as it is now (monotonic seconds); None where there is none."""
        before, looked = self._observed, self._looked
        self._observed, self._looked = None, now
        if lease is None:
            self.led_since = ALWAYS
        elif before is None or now > looked + STALE:
            self._observed, self.led_since = Observation(lease, now), None
        else:
            self._observed = observed = before.observe(lease, now)
            if not observed.holder or observed.is_expired(now):
                self.led_since = None
            elif observed.holder != before.holder:
                self.led_since = now
            elif observed.since != before.since and self.led_since is None:
                self.led_since = looked
