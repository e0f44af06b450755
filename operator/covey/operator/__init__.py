"""When things happen: the life cycle of a DisaggregatedInference.

One reconcile reads from top to bottom: ``observe`` (a snapshot of the caches), ``plan`` (pure: what has to be done),
``execute`` (does it, decides nothing), ``status`` (pure: what to tell), ``report`` (writes it where it differs). It is
level-triggered: an event only says which resource to look at. Nothing that matters is remembered in memory, so a
process killed at any instant is continued by the next.
"""
