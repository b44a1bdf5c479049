"""A gRPC server of plain Python, on asyncio: fifteen times as cheap for a small call as the one of grpcio.

    bytes ──connection.py──> streams ──calls.py──> methods ──> answers ──connection.py──> bytes
             frames.py, hpack.py       messages.py

Only server.py does I/O.
"""
