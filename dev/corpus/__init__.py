"""A corpus of faults that the tests have to find: ``make corpus``, or ``python -m corpus --help`` with ``dev`` on ``PYTHONPATH``.

``edits.toml`` has small edits of the product, each of which breaks something that matters: fixes of the past, taken back, and
mutants of guards, minimums, orders and comparisons. Each is made in a copy of the tree and judged by the tests that execute the
edited functions. ``results.md`` says which test was the first to fail; a later run names each edit that no test finds any more.
"""
