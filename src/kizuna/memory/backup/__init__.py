"""A copy of memory on this machine, which answers while the server cannot be reached."""
