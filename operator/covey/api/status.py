"""The status of a DisaggregatedInference: written by the operator alone, read by people and by autoscalers."""

from typing import Annotated

from pydantic import Field

from covey.api.meta import Conditions, Count, DnsLabel, DomainPath, Sentence, Timestamp, Word
from covey.api.model import BY_NAME, ListMap, Model


class RoleStatus(Model):
    """Replicas of one role, summed over all units."""

    name: DnsLabel
    """The role."""
    replicas: Count = 0
    """Replicas that are wanted."""
    min_replicas: Count = 0
    """Replicas without which units must not start."""
    admitted: Count = 0
    """Replicas whose pods all have a node reserved."""
    scheduled: Count = 0
    """Replicas whose pods are all bound."""
    ready: Count = 0
    """Replicas whose pods are all Ready."""
    updated: Count = 0
    """Replicas of the newest revision."""
    restarts: Count = 0
    """Times that replicas were recreated after a failure."""


class UnitStatus(Model):
    """One unit."""

    unit: Count
    """The unit's number, from 0."""
    phase: Word = ""
    """How far it has come."""
    reason: Sentence = ""
    """Why it is not further."""
    path: DomainPath = ()
    """The finest domain that holds all its pods: label values from the broadest level down, null where a node lacks
    the level."""
    served: bool = False
    """Whether its minimum has been Ready since the unit was made: only then is its loss a fault."""
    score: float | None = None
    """How well the wishes (preferred levels, proximity, spread) are met, 0 to 1."""


class RolloutHold(Model):
    """What a rollout waits for."""

    gate: Word = ""
    """What is waited for: Failed, Paused, Unsupported, Room, Readiness, Partition or Budget."""
    reason: Sentence = ""
    """Why."""
    since: Timestamp | None = None
    """Since when."""


class RolloutStatus(Model):
    """A rollout on its way."""

    from_revision: Word = ""
    """The revision it leaves."""
    to_revision: Word = ""
    """The revision it brings."""
    wave: Count = 0
    """The window that the new revision has reached, from 1."""
    ready: Count = 0
    """Ready replicas of the new revision, over all units."""
    outdated: Count = 0
    """Replicas of other revisions that are still there."""
    progressed_at: Timestamp | None = None
    """When either of the two got better last; progressDeadlineSeconds are counted from it."""
    hold: RolloutHold | None = None
    """What it waits for, if it does."""


class Summary(Model):
    """Short texts for the columns of kubectl get."""

    ready: Word = ""
    """Ready and wanted replicas of each role, such as: prefill 3/4 decode 2/2."""
    updated: Word = ""
    """Replicas of the newest revision and wanted replicas, such as: 5/6."""
    reason: Sentence = ""
    """Why it is not further."""
    domain: Word = ""
    """The domain that the units reached."""


class DisaggregatedInferenceStatus(Model):
    """What is, as the operator saw it last."""

    observed_generation: Count | None = None
    """The metadata.generation that the status was computed from."""
    conditions: Conditions = ()
    """Admitted, Scheduled, Available, Progressing, TopologySatisfied, Degraded, Paused, BackendSupported."""
    units: Count | None = None
    """Units that exist."""
    ready_units: Count | None = None
    """Units that have their minimum Ready."""
    roles: Annotated[tuple[RoleStatus, ...], BY_NAME, Field(max_length=16)] = ()
    """Replicas of each role, summed over all units."""
    unit_statuses: Annotated[tuple[UnitStatus, ...], ListMap(("unit",)), Field(max_length=64)] = ()
    """The units, the worst first; at most 64."""
    rollout: RolloutStatus | None = None
    """The rollout on its way, if there is one."""
    summary: Summary | None = None
    """Short texts for the columns of kubectl get."""
    selector: Word | None = None
    """A label selector of the pods that an autoscaler measures."""
