"""Deletes the budget of a namespace where no resource needs it any more."""

from __future__ import annotations

from collections.abc import Callable

from covey.backends import Owned
from covey.compile import disruption
from covey.kube.client import Client
from covey.kube.errors import Conflict, NotFound
from covey.kube.resources import POD_DISRUPTION_BUDGETS
from covey.observability.logging import get_logger

_log = get_logger(__name__)


class BudgetEnder:
    """Looks at one namespace. No resource owns its budget, so nobody else would delete it.

    A resource that comes at this moment makes it again once the watch shows that it has gone.

    Args:
        client: to the API server.
        find: the budget of a namespace.
        is_needed: whether a resource there needs it, or may need it.
    """

    def __init__(self, client: Client, find: Callable[[str], Owned | None], is_needed: Callable[[str], bool]) -> None:
        self._client = client
        self._find = find
        self._is_needed = is_needed

    async def __call__(self, namespace: str) -> None:
        """Delete the budget of a namespace, if nobody needs it.

        Raises:
            KubeError: that failed; it has to be tried again.
        """
        found = self._find(namespace)
        if found is None or found.metadata.deletion_timestamp is not None or self._is_needed(namespace):
            return
        try:
            await self._client.delete(POD_DISRUPTION_BUDGETS, disruption.NAME, namespace, uid=found.metadata.uid)
        except (NotFound, Conflict):
            return
        _log.info("budget of namespace deleted", namespace=namespace)
