"""The status of a DisaggregatedInference: written by the operator alone, read by people and by autoscalers."""

from typing import Annotated, Any, Final

from pydantic import Field

from covey.api.model import BY_NAME, Conditions, Count, DnsLabel, DomainPath, ListMap, Model, Sentence, Timestamp, Word

#: What ``status.observedGeneration`` is before anybody has looked: the CRD's default for a whole status. Without it kstatus
#: takes an object that has no conditions for one that is as it should be.
UNSEEN: Final = -1


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
    """Replicas of the newest revision; successors that wait for nodes do not count."""
    restarts: Count = 0
    """Times that replicas were recreated after a failure."""
    max_feasible: Count | None = None
    """Replicas that could be assigned nodes, all else as it is: those that had some when it was looked, and as many more as
    would have fitted. As of headroom.observedAt, and not kept up: it is looked again when somebody asks. Absent before
    anybody has asked, and where nobody knows (headroom.message). At most 256 more in a unit are looked for."""


class UnitEscalation(Model):
    """The pods that are about to be given up of a unit that is below its minimum."""

    step: Word = ""
    """Role: what is left of the roles that have too few replicas. Unit: all of it. Termination: all of it, because
    spec.gang.terminationDelaySeconds are over. Preemption: all of it, because a pod of it was evicted for another."""
    at: Timestamp | None = None
    """The time of it."""


class MetMinimum(Model):
    """Replicas of one role."""

    name: DnsLabel
    """The role."""
    replicas: Count = 0
    """Replicas that have had all of their nodes at once."""


class UnitStatus(Model):
    """One unit."""

    unit: Count
    """The unit's number, from 0."""
    phase: Word = ""
    """The progress of the unit."""
    reason: Word = ""
    """The reason for which it is not further, in one word."""
    message: Sentence = ""
    """The reason for which it is not further."""
    path: DomainPath = ()
    """The finest domain that holds all its pods: label values from the broadest level down, null where a node lacks
    the level."""
    served: bool = False
    """True: its minimum has been Ready since the unit was made: only then is its loss a fault."""
    below_minimum_since: Timestamp | None = None
    """Since when a unit that has served has fewer replicas with their nodes than its minimum; where
    spec.gang.terminationDelaySeconds is set, than the one that it met last."""
    met_minimum: Annotated[tuple[MetMinimum, ...], BY_NAME, Field(max_length=16)] = ()
    """By role, the minimum that the unit met last, less what its owner has allowed since to be missing (a rollout by
    maxUnavailable, an evacuation by allowBelowMinimum). Only where spec.gang.terminationDelaySeconds is set."""
    escalation: UnitEscalation | None = None
    """The part of it that is about to be given up, so that it can be placed anew."""


class RolloutHold(Model):
    """The gate at which a rollout waits."""

    gate: Word = ""
    """The thing that is waited for: Failed, Paused, Unsupported, Nodes, Readiness, Partition or Budget."""
    message: Sentence = ""
    """The reason, in a sentence."""
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
    """The time at which either of the two got better last; progressDeadlineSeconds are counted from it, but stand still
    while a replica drains or terminates, and begin anew with another operator."""
    hold: RolloutHold | None = None
    """The gate that it waits at, if it does."""


class Headroom(Model):
    """The answer to the question in the annotation covey.dev/headroom; its numbers are roles[].maxFeasible."""

    asked: Word
    """The text of the annotation that was answered; another one there is not answered yet."""
    observed_at: Timestamp
    """The time at which it was so."""
    message: Sentence = ""
    """The reason for which a role has no number, or for which it is not greater where that is not for want of capacity."""


class Summary(Model):
    """Short texts for the columns of kubectl get."""

    status: Word = ""
    """The state in one word: Serving, or the reason for which it is not, or not further, as it should be. Of containers
    that do not run it is the kubelet's word, such as ImagePullBackOff (docs/reference/status.md has all words)."""
    message: Word = ""
    """The beginning of the sentence that belongs to the word, with its first cause; empty where all is well."""
    ready: Word = ""
    """Ready and wanted replicas of each role, such as: prefill 3/4 decode 2/2."""
    units: Word = ""
    """Units that have their minimum Ready, and wanted ones, such as: 2/3."""
    updated: Word = ""
    """Replicas of the newest revision and wanted replicas, such as: 5/6."""
    reason: Sentence = ""
    """The reason for which it is not further, in full."""
    domain: Word = ""
    """The domain that the units reached."""


class DisaggregatedInferenceStatus(Model):
    """The observed state, as the operator saw it last."""

    observed_generation: Annotated[int | None, Field(ge=UNSEEN)] = None
    """The metadata.generation that the status was computed from; -1 before the operator has seen the object."""
    conditions: Conditions = ()
    """Ready, Admitted, Scheduled, Available, MinimumMet, Progressing, Degraded, BackendSupported; TopologySatisfied where a
    level is preferred; Stalled, Paused, Escalating and others (docs/reference/status.md) only while they hold."""
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
    complete_revision: Word | None = None
    """The revision with which every unit had its minimum Ready last, and at least one replica of each role. A rollout
    that is given up goes back to the newest that was complete."""
    headroom: Headroom | None = None
    """The last answer about head-room, if anybody has asked."""
    summary: Summary | None = None
    """Short texts for the columns of kubectl get."""
    selector: Word | None = None
    """A label selector of the pods that an autoscaler measures."""

    def as_written(self) -> dict[str, Any]:
        """Plain JSON of the fields that were given a value; one that means the same when it is absent stays away."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
