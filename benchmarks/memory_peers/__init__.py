"""Those that take part in remembering: one file each, and each with the versions that it would have if installed alone.

    python -m benchmarks.memory_peers <name> subject      does as it is ordered on its standard input

where PEER_URL names the server, PEER_LOOP the event loop, for those that leave the choice, and PEER_FOLDER a place for
files. A peer is a module with `remembering()`, which gives a `Memory`: see `roles.py`.
"""
