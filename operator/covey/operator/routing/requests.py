"""Who takes requests while revisions run side by side: pairings, their Services, and one revision at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from covey.api.inference import Routing
from covey.api.roles import Serves
from covey.operator.feature import Changes, Feature
from covey.operator.model.outcome import Outcome
from covey.operator.routing.capability import find_lacking
from covey.operator.routing.exclusive import find_exclusive
from covey.operator.routing.pairing import Pairing, find_pairing, with_pairs


@dataclass
class RequestRouting(Feature):
    """The pairing of each replica, on its pods and in Services, and who takes requests of several revisions."""

    HONOURS = frozenset({"spec.rollout.routing", "spec.roles[].serves"})

    _pairing: Pairing = field(init=False, default_factory=Pairing)

    def amend(self, changes: Changes) -> Changes:
        """Pods are born with the labels of their pairing; each that is whole has Services of its own."""
        spec, in_force, observed = self.given.spec, self.given.in_force, self.given.observed
        layout, states = changes.intent.layout, changes.intent.states
        pairing = find_pairing(spec, in_force, layout, observed, states)
        if spec.rollout is not None and spec.rollout.routing is Routing.EXCLUSIVE:
            pairing = find_exclusive(pairing, spec, in_force, layout, observed, states)
        if any(role.serves is Serves.BOTH for role in spec.roles):
            pairing = replace(pairing, remarks=(*pairing.remarks, *find_lacking(spec, layout, observed)))
        self._pairing = pairing
        labelled = changes.with_labels(pairing.add_to([item.slot for item in changes.create]))
        tree = with_pairs(changes.tree, spec, in_force, observed, states)
        return replace(labelled, tree=tree, routed=pairing.roles)

    def outcome(self, changes: Changes) -> Outcome:
        """Relabel pods that run, in turns."""
        del changes
        return self._pairing.relabel(self.given.observed)
