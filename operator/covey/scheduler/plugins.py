"""The list of plugins."""

from __future__ import annotations

from covey.scheduler.barrier_limit import Intake
from covey.scheduler.blocked import BlockedGangs
from covey.scheduler.context import Context
from covey.scheduler.expected_pods import ExpectedPods
from covey.scheduler.holding import Holding
from covey.scheduler.nominations import Nominations
from covey.scheduler.plugin import Plugin
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Reservations
from covey.scheduler.succession import Successors
from covey.scheduler.surroundings import Queueing
from covey.scheduler.whatif.exchange import Exchanges
from covey.scheduler.whatif.headroom import HeadroomQuestions


def make_plugins(
    context: Context, queueing: Queueing, quotas: Quotas, reservations: Reservations, holding: Holding
) -> tuple[Plugin, ...]:
    """Make all that takes part in scheduling beside the core; where several have something to say, the first is asked first."""
    quotas.follow(holding)
    parts = (context, queueing, quotas, reservations)
    return (
        Intake(context.cache),
        quotas,
        holding,
        ExpectedPods(context.cache),
        BlockedGangs(),
        Exchanges(*parts),
        Successors(*parts),
        Nominations(*parts),
        HeadroomQuestions(*parts),
    )
