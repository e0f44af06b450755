"""The start gate: pods that are placed with their gang, and started when it is their turn."""

from __future__ import annotations

from covey.api.roles import Role, Startup


def is_held(role: Role, index: int) -> bool:
    """Tell whether a pod waits for others: any of a role with dependencies, or a worker that waits for its leader."""
    return bool(role.depends_on) or (role.startup is Startup.LEADER_READY and index > 0)
