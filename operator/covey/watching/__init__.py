"""What is going on in a cluster, from its objects: pure functions for ``covey explain``, ``status`` and ``top``."""
