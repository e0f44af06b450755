"""What holds for all tests.

Hypothesis judges what is true, not how fast: its limit of 200 ms for an example is met by chance on a busy machine.
"""

from hypothesis import settings

settings.register_profile("covey", deadline=None)
settings.load_profile("covey")
