"""``spec.compat`` of a DisaggregatedInference."""

from enum import StrEnum
from typing import Annotated

from covey.api.model import LIVE, ROLLED, Model


class LwsLabels(StrEnum):
    """The use of LeaderWorkerSet's labels on pods."""

    NEVER = "Never"
    ALWAYS = "Always"


class LlmdLabels(StrEnum):
    """The use of llm-d's label on pods."""

    NEVER = "Never"
    ALWAYS = "Always"


class Compat(Model):
    """Compatibility with engines and routers that were written for another controller."""

    lws: Annotated[bool, ROLLED] = True
    """Sets LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX in every container. Default: true."""
    lws_labels: Annotated[LwsLabels | None, LIVE] = None
    """Always: pods have LeaderWorkerSet's labels name (<inference>-<role>, or <inference> where there is one role),
    group-index (of the replica in its unit), worker-index, group-key and template-revision-hash. Not where
    LeaderWorkerSet itself is installed: its webhook denies such pods. Default: Never."""
    llmd: Annotated[LlmdLabels | None, LIVE] = None
    """Always: pods of roles that serve have llm-d's label llm-d.ai/role: prefill, decode or, for a role that serves both,
    prefill-decode, which stays as others have set it. It is gone while a replica drains. Default: Never; pods that run keep
    what they have."""
