"""Which pods are born with the start gate: placed with their gang, and started when it is their turn."""

from __future__ import annotations

from covey.api.roles import Role, Startup


def is_held(role: Role, index: int) -> bool:
    """A pod of this index waits for others: all pods of a role that depends on another, or the workers of a leader."""
    return bool(role.depends_on) or (role.startup is Startup.LEADER_READY and index > 0)
