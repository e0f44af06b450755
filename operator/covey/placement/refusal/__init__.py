"""Reasons for a refusal, in plain words, and the proof of it."""
