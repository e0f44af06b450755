"""The budget of a role while it is rolled: replicas beyond the wanted number, and missing from it.

A percentage is of the wanted number; surge is rounded up, unavailability down. Where both come to nothing one replica
may be missing, for otherwise nothing could ever be replaced. These are the rules of Deployments
(``ResolveFenceposts`` of ``k8s.io/kubernetes/pkg/controller/deployment/util``).
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.api.roles import Role

_SURGE = 1


@dataclass(frozen=True, slots=True)
class Budget:
    """In replicas of one unit. ``unavailable`` is None where nobody has said: none, as long as a surge finds room.

    ``partition``: so many replicas keep the revision that they have.
    """

    surge: int = _SURGE
    unavailable: int | None = None
    partition: int = 0

    @classmethod
    def of(cls, role: Role, wanted: int) -> Budget:
        """The budget by a role's ``update`` where ``wanted`` replicas are wanted in a unit."""
        update = role.update
        if update is None:
            return cls()
        surge = _SURGE if update.max_surge is None else _resolved(update.max_surge, wanted, up=True)
        missing = None if update.max_unavailable is None else _resolved(update.max_unavailable, wanted, up=False)
        return cls(surge, 1 if not surge and not missing else missing, update.partition or 0)


def _resolved(value: int | str, wanted: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * wanted
    return -(-share // 100) if up else share // 100
