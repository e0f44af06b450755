"""State of a cluster, read from its objects: pure functions for ``covey explain``, ``status`` and ``top``."""
