"""Documents of other projects' kinds as DisaggregatedInferences, with the remarks as warnings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from covey.api import core
from covey.convert import KINDS, ConversionError, Levels, convert
from covey.manifests.documents import Document
from covey.manifests.errors import InputError, ManifestProblem
from covey.placement.cluster.presets import PRESETS, topology_of

#: The kinds that are understood, for people.
SOURCES: Final = ", ".join(sorted(kind for _, kind in KINDS))


def known_levels(topologies: Iterable[core.ClusterTopology]) -> Levels:
    """The levels of some ClusterTopologies; of the presets that ship with Covey where there is none."""
    given = list(topologies)
    by_key: dict[str, str] = {}
    for topology in map(topology_of, given) if given else PRESETS:
        for level in topology.levels:
            for key in level.keys:
                by_key.setdefault(key, level.name)
    return Levels(by_key, frozenset(topology.metadata.name for topology in given))


def convert_document(document: Document, levels: Levels) -> tuple[Document, list[str]]:
    """A document as a DisaggregatedInference, and a warning for each remark; one of another kind as it is.

    Whatever is wrong with the result later is said with its path below ``converted``, the rest with that of the source.

    Raises:
        InputError: it cannot be converted.
    """
    if (document.group, document.kind) not in KINDS:
        return document, []
    place = document.place
    try:
        converted = convert(document.body, levels)
    except ConversionError as error:
        raise InputError(place.at(error.path), error.what, error.instead) from None
    warnings = [
        str(ManifestProblem(place.at(remark.path), remark.what, remark.instead)) for remark in converted.remarks
    ]
    return Document(place.at("converted"), converted.body), warnings
