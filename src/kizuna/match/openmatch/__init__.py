"""Generated from proto/openmatch by `make protos`, all but this file and pool.py."""
