"""``RoleScaler``: replicas of one role for an autoscaler to set, or of several roles for a planner, as one vector."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from covey.api.inference import MOST_PODS
from covey.api.model import LIVE, VERBATIM, CelRule, Conditions, Count, Model, ObjectMeta, Word

_COUNTS: Final = {
    "type": "object",
    "maxProperties": 16,
    "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": MOST_PODS},
    VERBATIM: True,
}
#: Replicas over all units, by the name of the role.
Vector = Annotated[dict[str, int], WithJsonSchema(_COUNTS)]


class RoleScalerSpec(Model):
    """The desired number of replicas."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.replicas) || (has(oldSelf.replicas) && self.replicas == oldSelf.replicas) || "
            "self.replicas >= (has(self.minReplicas) ? self.minReplicas : 0)",
            "replicas is below minReplicas, which the role needs over all units: ask for more",
            # The cost of string() of a number has no bound; that of format() has.
            says="'%d replicas are fewer than the %d that the role needs over all units (minReplicas of the role times units): "
            "ask for at least so many'.format([self.replicas, self.minReplicas])",
            at=".replicas",
        ),
        CelRule(
            "has(self.replicas) != has(self.targets)",
            "exactly one of replicas and targets: roles that are scaled together take a whole vector in targets, and no "
            "single number, nor one through the scale subresource",
        ),
        CelRule(
            "has(self.targets) == has(oldSelf.targets)",
            "whether there is one number or a vector is decided when the RoleScaler is created: set scaling.mode of the "
            "roles instead",
            forbids=True,
        ),
    )

    replicas: Annotated[int | None, LIVE, Field(ge=0, le=MOST_PODS)] = None
    """Replicas of the role, summed over all units; an autoscaler or a person sets them through the scale subresource.
    They are spread evenly over the units, those of lower number have the remainder. 0 to 20000. Absent where there are
    targets."""
    targets: Annotated[Vector | None, LIVE] = None
    """Of roles with scaling.mode Together: the replicas of each, summed over all units, by its name. It is judged as a
    whole before anything moves, and taken as a whole or not at all; a role that it leaves out keeps its number. Each 0 to
    20000."""
    min_replicas: Annotated[int, LIVE, Field(ge=0, le=MOST_PODS)] = 0
    """Covey's: the minReplicas of the role, summed over all units. Fewer replicas are refused."""


class RoleScalerStatus(Model):
    """The observed state, as the operator saw it last."""

    observed_generation: Count | None = None
    """The metadata.generation that the status was computed from."""
    replicas: Count = 0
    """Replicas that exist: the leaders of all units."""
    selector: Word = ""
    """A label selector of the leaders, one pod for each replica."""
    committed: Vector | None = None
    """Of roles that are scaled together: the vector that is in force, the last that could be had as a whole."""
    observed: Vector | None = None
    """Of roles that are scaled together: replicas of each that have their nodes, those on their way out included."""
    conditions: Conditions = ()
    """ScalingLimited: the role has another number of replicas than spec.replicas asks for, and why. Committed: whether the
    targets are in force, and why not."""


class RoleScaler(Model):
    """The number of replicas of one role with scaling.mode External, or of all roles with mode Together.

    Covey makes one for each External role, called <resource>-<role>, or <resource>.<role> where the role's name has a
    dash, and one for all roles with mode Together, called <resource>.together.
    """

    api_version: Literal["inference.covey.dev/v1alpha1"] = "inference.covey.dev/v1alpha1"
    kind: Literal["RoleScaler"] = "RoleScaler"
    metadata: ObjectMeta
    spec: RoleScalerSpec
    """The desired number of replicas."""
    status: RoleScalerStatus | None = None
    """The observed state, as the operator saw it last."""
