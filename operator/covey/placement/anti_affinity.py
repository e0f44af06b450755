"""Required pod anti-affinity and required spread of pods: their terms, and which pods they match.

A term belongs to one pod and speaks of others, by their labels. Labels differ from pod to pod, so they stay outside
the shape; what enters it is which of the terms in play match the pod (`TermCounts.matching`), mostly none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from covey.api import constants, core
from covey.api.spread import find_kept_spread

#: The one label that every namespace carries with a known value: its name.
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_NOTHING: Final[frozenset[Term]] = frozenset()


@dataclass(frozen=True, slots=True)
class Term:
    """One required term, as kube-scheduler reads it.

    ``key`` is the node label whose values make up the domains. The pods meant are those with all ``expressions`` true
    of their labels, in one of ``namespaces`` or in one that all of ``selector`` hold for (None: there is no selector).
    """

    key: str
    namespaces: frozenset[str]
    selector: tuple[core.Requirement, ...] | None
    expressions: tuple[core.Requirement, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Shapes are keys, and terms are what costs most in them.
        object.__setattr__(self, "_hash", hash((self.key, self.namespaces, self.selector, self.expressions)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def exact(self) -> bool:
        """Tell whether everything that the term looks at is known; namespaces are known by name only."""
        return all(requirement.key == _NAMESPACE_NAME for requirement in self.selector or ())

    def matches(self, meta: core.Meta) -> bool:
        """Tell whether the term matches a pod. Labels of namespaces that are not known count as matching."""
        labels = meta.labels or {}
        for requirement in self.expressions:
            if not core.holds(requirement, labels.get(requirement.key)):
                return False
        return meta.namespace in self.namespaces or (
            self.selector is not None
            and all(r.key != _NAMESPACE_NAME or core.holds(r, meta.namespace) for r in self.selector)
        )


class TermCounts:
    """The terms in play, each as often as it was added."""

    def __init__(self, terms: Iterable[Term] = ()) -> None:
        self._count: Counter[Term] = Counter()
        self._versions = count(1)
        #: Changes with every term that comes into play or goes out of it; no number comes twice.
        self.version = 0
        #: Terms by a pair of label key and value without which they match nothing, and those without such a pair.
        self._by_label: dict[tuple[str, str], set[Term]] = {}
        self._others: set[Term] = set()
        for term in terms:
            self.add(term)

    def __bool__(self) -> bool:
        return bool(self._count)

    def __contains__(self, term: Term) -> bool:
        return term in self._count

    def add(self, term: Term) -> None:
        """Count one more pod that has the term."""
        self._count[term] += 1
        if self._count[term] == 1:
            self.version = next(self._versions)
            for label in _labels(term):
                self._by_label.setdefault(label, set()).add(term)
            if not _labels(term):
                self._others.add(term)

    def remove(self, term: Term) -> None:
        """Count one pod less that has the term."""
        self._count[term] -= 1
        if self._count[term] > 0:
            return
        del self._count[term]
        self.version = next(self._versions)
        self._others.discard(term)
        for label in _labels(term):
            self._by_label[label].discard(term)
            if not self._by_label[label]:
                del self._by_label[label]

    def matching(self, meta: core.Meta) -> frozenset[Term]:
        """Return the terms that match a pod."""
        matching = [term for term in self._others if term.matches(meta)]
        if self._by_label:
            for label in (meta.labels or {}).items():
                matching += [term for term in self._by_label.get(label, ()) if term.matches(meta)]
        return frozenset(matching) if matching else _NOTHING


@dataclass(frozen=True, slots=True)
class PodSpread:
    """Required spread of pods over the values of a node label (``topologySpreadConstraints``), as a plan keeps it.

    No domain to which a plan adds pods may have more than ``max_skew`` beyond the domain with the fewest. Counted are
    the pods that ``term`` matches, and looked at are the nodes that the pod's selectors allow; with ``heeds_taints`` only
    those whose taints it tolerates.
    """

    term: Term
    max_skew: int
    heeds_taints: bool
    #: How many pods the domain with the fewest shall have after the plan; known once it is planned.
    floor: int | None = None


def pod_spread_of(pod: core.Pod) -> PodSpread | None:
    """The required spread of a pod that the planner keeps (``api.spread``)."""
    if not pod.spec.topology_spread_constraints:
        return None
    meta = pod.metadata
    kept = find_kept_spread(pod.spec.topology_spread_constraints, meta.labels)
    if kept is None:
        return None
    expressions = _expressions(kept.label_selector or core.LabelSelector())
    term = Term(kept.topology_key, frozenset((meta.namespace,)), None, expressions)
    return PodSpread(term, kept.max_skew, heeds_taints=kept.node_taints_policy == "Honor")


def terms_of(pod: core.Pod) -> tuple[Term, ...]:
    """The pod's own required anti-affinity terms, in one order; a term with a null selector speaks of no pod."""
    affinity = pod.spec.affinity
    required = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    own_terms = {_term(term, pod.metadata) for term in required or () if term.label_selector is not None}
    return tuple(sorted(own_terms, key=repr))


def _term(term: core.PodAffinityTerm, meta: core.Meta) -> Term:
    labels = meta.labels or {}
    # The API server writes what these two mean into the selector of a pod; a template that is planned has it not yet.
    same = _pairs(term.match_label_keys, labels, "In")
    other = _pairs(term.mismatch_label_keys, labels, "NotIn")
    selector = term.namespace_selector
    namespaces = term.namespaces or (() if selector is not None else (meta.namespace,))
    return Term(
        term.topology_key,
        frozenset(namespaces),
        None if selector is None else _expressions(selector),
        _expressions(term.label_selector or core.LabelSelector(), (*same, *other)),
    )


def _pairs(keys: Collection[str] | None, labels: Mapping[str, str], operator: str) -> list[core.Requirement]:
    return [core.Requirement(key, operator, (labels[key],)) for key in keys or () if key in labels]


def _expressions(selector: core.LabelSelector, more: Iterable[core.Requirement] = ()) -> tuple[core.Requirement, ...]:
    """A selector's requirements, in one order."""
    pairs = (core.Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items())
    expressions = {_sort_values(expression) for expression in (*pairs, *(selector.match_expressions or ()), *more)}
    return tuple(sorted(expressions, key=repr))


def _sort_values(requirement: core.Requirement) -> core.Requirement:
    values = tuple(sorted(set(requirement.values or ()))) or None
    return core.Requirement(requirement.key, requirement.operator, values)


def _labels(term: Term) -> tuple[tuple[str, str], ...]:
    """Labels of which a pod must have one for the term to match it; none when that cannot be said."""
    for expression in term.expressions:
        if expression.operator == "In":
            return tuple((expression.key, value) for value in expression.values or ())
    return ()


def is_host(term: Term) -> bool:
    """Tell whether the term keeps pods off one node, not off a whole domain."""
    return term.key == constants.HOSTNAME_LABEL


#: In play while a holder's interconnect shares no clique. It matches no pod: owners are compared (`model.Clique`).
EXCLUSIVE_CLIQUE: Final = Term("", frozenset(), None, ())
