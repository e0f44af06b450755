"""The features of the operator, in their order of precedence: of remarks of one type the first is reported."""

from __future__ import annotations

from typing import Final

from covey.operator.capacity.asks import NodeRequests
from covey.operator.feature import Features
from covey.operator.repair.repair import Repair
from covey.operator.resource_quota.fit import ResourceQuotas
from covey.operator.rolling.evacuate import Evacuation
from covey.operator.rolling.give_way import PreemptedReplicas
from covey.operator.rolling.in_place import InPlaceUpdates
from covey.operator.rolling.remake import RecreatedGroups
from covey.operator.rolling.rollout import Rollout
from covey.operator.routing.pool import InferencePool
from covey.operator.routing.requests import RequestRouting
from covey.operator.scaling.draining import Drains
from covey.operator.scaling.exchange import ExchangedRoles
from covey.operator.scaling.headroom import HeadRoom
from covey.operator.scaling.scaler import Scalers
from covey.operator.start_order import StartOrder

FEATURES: Final[Features] = (
    Evacuation,
    Repair,
    Scalers,
    ExchangedRoles,
    PreemptedReplicas,
    Drains,
    StartOrder,
    HeadRoom,
    NodeRequests,
    InferencePool,
    InPlaceUpdates,
    RequestRouting,
    ResourceQuotas,
    Rollout,
    RecreatedGroups,
)
