"""The scheduler process: it decides who may start and where, and guards those decisions in kube-scheduler.

Reading order: ``model.podstate`` (what one pod's fields mean), ``admission.tree`` (groups and pods as units),
``admission.gangs`` (a unit as the planner sees it), ``cache`` (what is watched), ``queue`` (who is next, and who waits for
what), ``cycle`` (how one unit gets its nodes or a refusal), ``plugin`` (where others take part in that), ``commit``,
``pin`` and ``writer`` (how a plan becomes patches), ``guard`` and ``barrier`` (what kube-scheduler asks), ``releases`` (how
a pin is undone), ``statuses`` (what people see), ``server`` and ``main`` (the process).

Nothing is remembered only in memory that a decision depends on. A restart derives

* what is reserved from pods: a pin and no gate of ours (``Index.holding``),
* what is bound from ``spec.nodeName``,
* what is admitted from those two and the groups' minimums (``tree``),
* since when from the root group's ``Admitted`` condition, which nodes failed from its ``excludedNodes``, and which
  nodes are kept for it, or until when it is at the back of the line, from its ``claim``.
"""
