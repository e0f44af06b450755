"""``covey ui`` in a real browser: what its tests drive it with, and the screenshots of the documentation."""
