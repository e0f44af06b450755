"""How far hypothesis goes: the same examples every time, unless ``COVEY_EXPLORE`` asks for that many new ones."""

import os

from hypothesis import HealthCheck, settings

EXPLORE = int(os.environ.get("COVEY_EXPLORE", "0"))

#: Put on every property test.
PROFILE = settings(
    derandomize=not EXPLORE,
    database=None,
    max_examples=EXPLORE or 50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
