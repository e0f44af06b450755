"""The pure planner of rollouts: how a change of rolled fields reaches what runs.

Planned is from what is observed alone, anew in every pass. There is no plan that is carried out step by step, so an
edit, a reversal, a change of scale or a death in the middle of a rollout is only another observation.
"""

from covey.rollout.model import RoleState, RolloutBudget, RolloutReplica, Stage, UnitState, UnitStep
from covey.rollout.step import next_step

__all__ = ["RoleState", "RolloutBudget", "RolloutReplica", "Stage", "UnitState", "UnitStep", "next_step"]
