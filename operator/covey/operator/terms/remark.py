"""Remarks of a plan on a resource, in addition to how far it has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that holds now, and what a person can do about it.

    ``type`` is the condition that is True while it holds; of several of one type the first is reported. ``Degraded`` is
    a type like any other. ``message`` is a sentence, ``reason`` one word for programs.
    """

    type: str
    reason: str
    message: str
