"""The queues that take part: one file each, and each with the versions that it would have if installed alone.

    python -m benchmarks.queue_peers <name> worker      runs tasks until its standard input ends
    python -m benchmarks.queue_peers <name> producer    does as it is ordered on its standard input

where PEER_URL names the server and PEER_LOOP the event loop, for those that leave the choice. A peer is a module
with `connect()`, which returns a `Producer` (see `roles.py`), and `work()`, which is the worker.
"""
