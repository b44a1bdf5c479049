"""What kizuna costs, measured against its peers on the same server in the same run: `python -m benchmarks`."""
