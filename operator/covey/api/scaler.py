"""``RoleScaler``: the number of replicas of one role, for an autoscaler to set."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from covey.api.inference import MOST_PODS
from covey.api.model import LIVE, Conditions, Count, Model, ObjectMeta, Rule, Word


class RoleScalerSpec(Model):
    """The desired number of replicas."""

    RULES: ClassVar = (
        Rule(
            "self.replicas == oldSelf.replicas || self.replicas >= (has(self.minReplicas) ? self.minReplicas : 0)",
            "replicas is below minReplicas, which the role needs over all units: ask for more",
            # The cost of string() of a number has no bound; that of format() has.
            says="'%d replicas are fewer than the %d that the role needs over all units (minReplicas of the role times units): "
            "ask for at least so many'.format([self.replicas, self.minReplicas])",
            at=".replicas",
        ),
    )

    replicas: Annotated[int, LIVE, Field(ge=0, le=MOST_PODS)]
    """Replicas of the role, summed over all units; an autoscaler or a person sets them through the scale subresource.
    They are spread evenly over the units, those of lower number have the remainder. 0 to 20000."""
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
    conditions: Conditions = ()
    """ScalingLimited: the role has another number of replicas than spec.replicas asks for, and why."""


class RoleScaler(Model):
    """The number of replicas of one role with scaling.mode External, summed over all units.

    Covey makes one for each such role, called <resource>-<role>, or <resource>.<role> where the role's name has a dash.
    """

    api_version: Literal["inference.covey.dev/v1alpha1"] = "inference.covey.dev/v1alpha1"
    kind: Literal["RoleScaler"] = "RoleScaler"
    metadata: ObjectMeta
    spec: RoleScalerSpec
    """The desired number of replicas."""
    status: RoleScalerStatus | None = None
    """The observed state, as the operator saw it last."""
