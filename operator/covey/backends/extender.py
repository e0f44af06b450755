"""Covey places the pods itself; any stock kube-scheduler binds them, guarded by the extender.

Groups are Covey's own kinds (``scheduling.covey.dev``), and every pod is born with the gate that only Covey's
scheduler lifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from covey.api.inference import Backend, DisaggregatedInference
from covey.compile import Layout, Revision, Tree, compile_inference


class Extender:
    """The backend ``Extender``, which ``Auto`` means."""

    name: ClassVar[Backend] = Backend.EXTENDER

    def tree(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Sequence[str] | None = None,
    ) -> Tree:
        """The tree as ``compile`` gives it."""
        return compile_inference(inference, layout=layout, revision=revision, levels=levels)
