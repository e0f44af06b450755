"""The only code that talks HTTP to the API server: client, reflector, work queue, lease, events.

The semantics are client-go's wherever it has one; each module names what it follows and where it differs.
Own code, because nothing well kept exists for asyncio that keeps 10,000 pods current within a few
microseconds an event: kopf spends 2 ms on one.
"""
