"""ResourceQuotas, and the defaults that LimitRanges give to containers."""

from __future__ import annotations

import msgspec

from covey.api.core.meta import Meta, Read

Quantities = dict[str, str | int | float]


class ScopeRequirement(Read, frozen=True):
    """``ScopedResourceSelectorRequirement``."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(Read, frozen=True):
    """``ScopeSelector``: all requirements have to hold."""

    match_expressions: tuple[ScopeRequirement, ...] | None = None


class ResourceQuotaSpec(Read, frozen=True):
    """``ResourceQuotaSpec``."""

    hard: Quantities | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Read, frozen=True):
    """``ResourceQuotaStatus``: what the API server admits by, and what is taken of it."""

    hard: Quantities | None = None
    used: Quantities | None = None


class ResourceQuota(Read, frozen=True):
    """A ResourceQuota."""

    metadata: Meta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(Read, frozen=True):
    """``LimitRangeItem``, as far as it gives defaults."""

    type: str = ""
    default: Quantities | None = None
    default_request: Quantities | None = None
    max: Quantities | None = None
    min: Quantities | None = None


class LimitRangeSpec(Read, frozen=True):
    """``LimitRangeSpec``."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Read, frozen=True):
    """A LimitRange."""

    metadata: Meta
    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)
