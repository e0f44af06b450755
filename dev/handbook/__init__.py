"""The documentation: how its pages are read, what is generated for its site, and what its tests run.

``pages`` reads a page into what a test can run; ``fields``, ``programs`` and ``examples`` write the parts that come from
the code; ``hooks`` is what MkDocs calls.
"""
