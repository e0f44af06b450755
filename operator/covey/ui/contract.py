"""The messages between the server of ``covey ui`` and its page: frozen values, and their JSON in camel case.

==========================================  ==================================================================================
``GET /``, ``GET /FILE``                    the page
``POST api/session``                        :class:`Code` → :class:`Session`, once for each code
``GET api/state``                           :class:`ViewState`
``GET api/events``                          ``text/event-stream``: first ``event: snapshot`` with a :class:`ViewState`, then
                                            ``event: change`` with a :class:`Change`, at most one a second; ``event: end`` with
                                            an :class:`ErrorReply` when the viewer's rights have ended; comments every 15 s
``GET api/gangs/NAMESPACE/NAME/story``      :class:`History`
``POST api/plan?namespace=NS``              a manifest as text → :class:`PlanAnswer`, or 400 with an :class:`ErrorReply`
``GET api/explain/REASON``                  :class:`Explained`
==========================================  ==================================================================================

All under ``api`` but the session wants ``Authorization: Bearer TOKEN``, and answers 401 without one or when it is not
good (any more); where a proxy in front adds the header, the page sends none. State and events take ``?namespace=NS``,
repeatable; without it they are about the namespace that the command was given, else (and with an empty one) about
everything that the viewer may read. Whatever is not 2xx has an :class:`ErrorReply` for a body.

A change is a JSON Merge Patch (RFC 7386) of the state: entries of the four maps are sent whole when they are new or
different, and null when they are gone.

Times are RFC 3339 in UTC. Names, messages and labels are other people's text: the page shows them as text, never as
markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from covey.picture.floor import DeviceOwner, DomainMark
from covey.placement.model import Path
from covey.planning.report import CamelStruct
from covey.watching.advice import Advice


class SignInMode(StrEnum):
    """The way in for a viewer."""

    KUBECONFIG = "kubeconfig"
    """``covey ui``: through the link that it printed; everything is read with its kubeconfig."""
    TOKEN = "token"  # noqa: S105 - a word, no secret
    """``covey ui --sign-in``: with a bearer token for the API server, from the page's form or from a proxy in front."""


class ErrorDetail(CamelStruct, frozen=True):
    """A problem: what is wrong, in a sentence; where, for input; what to do, where something can be done."""

    what: str
    hint: str = ""
    where: str = ""


class ErrorReply(CamelStruct, frozen=True):
    """The reason for no answer.

    401: no token, or it is not good (any more); ``mode`` says how to get in. 403: the viewer may not read what was
    asked for. 404, 409 (a code that was used), 413 (too large), 429 (too many viewers, or too much at once). 502: the
    API server does not answer. 503: the server could not go on with this view. 504: it took too long. 400: bad input;
    ``errors`` has all of it.
    """

    error: ErrorDetail
    mode: SignInMode
    errors: tuple[ErrorDetail, ...] = ()


class Code(CamelStruct, frozen=True):
    """The code in the fragment of the link that the command printed: ``http://127.0.0.1:PORT/#code=…``."""

    code: str


class Session(CamelStruct, frozen=True):
    """The token of this viewer, for ``Authorization: Bearer``."""

    token: str


class Denied(CamelStruct, frozen=True):
    """Something that the viewer's credentials cannot read."""

    verb: str
    resource: str
    """The API's plural, such as ``nodes``."""
    group: str
    namespace: str | None
    """None: all namespaces."""
    message: str
    """The words of the API server, and the parts that are missing on the page."""


class Viewer(CamelStruct, frozen=True):
    """The viewer, and how much of the cluster is shown."""

    name: str
    """As the API server knows the viewer; empty where it does not say."""
    mode: SignInMode
    namespaces: tuple[str, ...]
    """The namespace that is looked at; empty: all namespaces."""


class TopologyView(CamelStruct, frozen=True):
    """The levels that are worth a box, from the broadest to the narrowest, and words for those that all nodes share."""

    name: str
    """Of the ClusterTopology or the preset; empty where none is clear: then there are no levels."""
    levels: tuple[str, ...]
    constant: tuple[str, ...]


class NodeView(CamelStruct, frozen=True):
    """A node; a cell is ``scale`` of the state's ``resource``."""

    path: tuple[str | None, ...]
    """Its domain at each of the topology's levels; null where it has none."""
    cells: int
    others: int
    """Cells of pods that are not in ``pods``."""
    closed: str | None
    """The reason for which nothing can be placed there now: ``cordoned``, ``not ready``."""


class RoleView(CamelStruct, frozen=True):
    """A role of a gang's units, summed over them."""

    name: str
    letter: str
    """Tells it from the gang's other roles."""
    ink: int
    """Numbers the colours over all gangs."""
    size: int
    """Pods in a replica."""
    replicas: int
    """Wanted."""
    minimum: int
    admitted: int
    scheduled: int
    ready: int
    updated: int
    restarts: int
    max_feasible: int | None
    """The number of replicas that would have places if as many were asked for; null where it was not computed."""


class UnitView(CamelStruct, frozen=True):
    """A unit: what starts as one."""

    unit: int
    state: str
    reason: str
    placement: str
    """In words, such as ``block b1, rack r3``."""


class HoldView(CamelStruct, frozen=True):
    """The gate at which a rollout waits."""

    gate: str
    reason: str
    """In a sentence."""
    since: str


class RolloutView(CamelStruct, frozen=True):
    """A rollout on its way."""

    from_: str = msgspec.field(name="from")
    to: str
    wave: int
    ready: int
    outdated: int
    paused: bool
    hold: HoldView | None


class ConditionView(CamelStruct, frozen=True):
    """A condition of the resource; ``wrong``: it says that something is not, or not yet, as it should be."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    wrong: bool


class GangView(CamelStruct, frozen=True):
    """A DisaggregatedInference; ``ready`` counts units of ``total``.

    ``state`` here, of units and of pods: ``ready``, ``serving`` (its minimum is Ready, and not all that is wanted),
    ``starting`` (bound, not Ready yet), ``held`` (it has its place, and waits for its gang or for others to start),
    ``waiting`` (no place), ``failed``.
    """

    namespace: str
    name: str
    state: str
    reason: str
    ready: int
    total: int
    created: str
    suspended: bool
    draining: bool
    """It is being deleted."""
    backend: str
    problem: str
    """The reason for which it cannot be shown in full (this release does not understand it); else empty."""
    roles: tuple[RoleView, ...]
    units: tuple[UnitView, ...]
    rollout: RolloutView | None
    conditions: tuple[ConditionView, ...]
    """The first thing that is wrong."""
    advice: tuple[Advice, ...]
    """The gravest first."""
    status: str
    """The word that ``kubectl get`` shows as STATUS; empty where no operator has written one."""


class PodView(CamelStruct, frozen=True):
    """A pod of a gang."""

    gang: str
    unit: int
    role: str
    replica: int
    index: int
    """Its number in the replica; 0 is the leader."""
    node: str | None
    """Where it is, or has its place."""
    cells: int
    state: str
    reason: str
    draining: bool
    """It is being drained, or deleted."""
    revision: str


class WaitingView(CamelStruct, frozen=True):
    """Something that a gang waits for; ``unit`` is null for the gang as a whole."""

    gang: str
    unit: int | None
    reason: str
    message: str
    since: str
    """Empty where no object says it."""
    meaning: str
    remedy: str
    needs_person: bool
    """Nothing that Covey retries helps."""
    reserved: str | None
    """The room that is kept for it meanwhile, in words."""


class LeaderView(CamelStruct, frozen=True):
    """A process of Covey's that leads, as its lease says."""

    process: str
    """``operator`` or ``scheduler process``."""
    lease: str
    """``namespace/name``."""
    holder: str
    since: str
    """RFC 3339; empty where the lease does not say."""
    version: str
    """Covey's; empty where the holder does not tell."""
    namespaces: tuple[str, ...]
    """Those that it watches; none: all."""


class ViewState(CamelStruct, frozen=True):
    """Everything at one moment, as far as the viewer may read it."""

    version: str
    """Covey's, of this server."""
    server: str
    """The version of the API server; empty where it does not say."""
    cluster: str
    """The context of the kubeconfig; empty where viewers sign in."""
    viewer: Viewer
    now: str
    denied: tuple[Denied, ...]
    leaders: tuple[LeaderView, ...]
    """Who leads; none where leases may not be read."""
    absences: tuple[Advice, ...]
    """Who does not look after these gangs, though somebody should, and where to look."""
    warnings: tuple[str, ...]
    topology: TopologyView
    resource: str
    """The resource that is counted: the device that nodes offer, such as ``nvidia.com/gpu``; ``cpu`` where none does."""
    device: str
    """A word for it, such as ``GPU``."""
    scale: int
    """The amount of the resource that a cell stands for."""
    nodes: Mapping[str, NodeView]
    """By name."""
    gangs: Mapping[str, GangView]
    """By ``namespace/name``; so are pods."""
    foreign: int
    """Gangs of other controllers: root groups that no DisaggregatedInference owns. Their pods are among ``others`` of nodes."""
    pods: Mapping[str, PodView]
    waiting: Mapping[str, WaitingView]
    """By ``namespace/name/UNIT/NUMBER``; the unit is empty for the gang as a whole."""


Change = Mapping[str, Any]
"""A JSON Merge Patch of a State; ``now`` is always in it."""


class HistoryEvent(CamelStruct, frozen=True):
    """A moment of a story."""

    time: str
    kind: str
    """created, admitted, bound, ready, waiting, failed, rollout, evacuation, scaled, draining, other."""
    type: str
    """Normal or Warning."""
    reason: str
    message: str
    count: int
    last: str | None
    """The last time, where it happened more than once."""
    unit: int | None
    role: str | None
    replica: int | None
    object: str
    """The object that says it, such as ``Pod/llm-0-prefill-0-0-x8k2p``."""
    source: str
    """Where it is written: metadata, condition, event, status, pod."""


class ReplicaTimeline(CamelStruct, frozen=True):
    """The life of one replica that there is now, by its slowest pod; null for what has not come yet."""

    unit: int
    role: str
    replica: int
    revision: str
    state: str
    created: str
    placed: str | None
    """All its pods have their nodes reserved."""
    bound: str | None
    ready: str | None
    draining: str | None
    restarts: int


class History(CamelStruct, frozen=True):
    """The known life of a gang, the oldest event first. The API server forgets Events after an hour."""

    gang: str
    now: str
    events: tuple[HistoryEvent, ...]
    lanes: tuple[ReplicaTimeline, ...]
    left_out: int
    """Older events and further lanes that are not sent."""
    denied: tuple[Denied, ...]


class FloorPod(CamelStruct, frozen=True):
    """A planned pod on its node."""

    workload: str
    unit: int
    role: str
    replica: int
    index: int
    node: str
    cells: int


class PlanPicture(CamelStruct, frozen=True):
    """A plan as a picture; a cell is ``scale`` of ``resource``."""

    resource: str
    scale: int
    roles: tuple[DeviceOwner, ...]
    pods: tuple[FloorPod, ...]
    marks: tuple[tuple[Path, DomainMark], ...]
    """Domains that the verdict names; their paths have all levels of the plan's topology."""


class PlanAnswer(CamelStruct, frozen=True):
    """The answer of ``covey plan --cluster``: its report (docs: plan.schema.json), next to keys of the page's own."""

    status: int
    """The command's exit status. 0: every minimum is placed; 3: something is infeasible; 4: unknown."""
    report: Any
    sentences: tuple[str, ...]
    """The reason for which something has no place."""
    floor: PlanPicture
    denied: tuple[Denied, ...]
    """The parts that were not taken into account, since the viewer cannot read it."""


class Explained(CamelStruct, frozen=True):
    """A reason, or a condition's type, in words."""

    reason: str
    meaning: str
    remedy: str
    needs_person: bool
