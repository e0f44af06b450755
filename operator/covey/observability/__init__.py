"""Logs, metrics and probes of both processes."""
