"""A stage for stories about Covey on a real control plane; ``CONTRIBUTING.md`` says how to write one."""

from stage.ground import Ground, NotAtRestError
from stage.play import Stage

__all__ = ["Ground", "NotAtRestError", "Stage"]
