"""The life cycle of a DisaggregatedInference: when things happen.

One reconcile (``reconcile``) reads from top to bottom: ``observe`` takes a snapshot, ``validation`` says what of the spec is
kept up, ``plan`` (pure) what has to be done, ``execute`` does it and decides nothing, ``status`` says what there is to
say. It is level-triggered: an event only says which resource to look at. Nothing that matters is remembered in memory,
so a process killed at any instant is continued by the next.

=========================================================  =============================================================
``process``                                                the process around it: flags, lease, kopf
``handlers``, ``reconcile``                                the way in, and one pass over one resource
``observe``, ``execute``, ``status``                       its edges: what reads and writes, and what people read
``plan``                                                   sums up what the rooms below decide
``desired``                                                which replicas there shall be, and the tree they come to
``capacity``, ``release``, ``repair``,                     one feature each: pure
``resource_quota``, ``rolling``, ``routing``, ``scaling``,
``start_order``
``objects``, ``replicas``                                  objects and pods, kept as they should be: pure
``model``                                                  what is decided from, and the words that all share
=========================================================  =============================================================
"""
