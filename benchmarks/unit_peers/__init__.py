"""Those that take part in calling: one file each, and each with the versions that it would have if installed alone.

    python -m benchmarks.unit_peers <name> responder     echoes what it is asked
    python -m benchmarks.unit_peers <name> requester     calls as it is ordered on its standard input
    python -m benchmarks.unit_peers <name> server        for those that have a server of their own

where PEER_URL names the server and PEER_LOOP the event loop, for those that leave the choice. A peer is a module with
`responding()`, which is entered when it answers, and `calling()`, which gives a function that makes one call.
"""
