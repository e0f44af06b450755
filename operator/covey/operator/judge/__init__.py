"""Judgement of a spec: whether it is accepted, with which backend and topology, and what is kept up while it is not."""
