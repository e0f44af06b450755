"""Failures of pods: counted once, noted on objects, and judged by the restart policy of the role."""
