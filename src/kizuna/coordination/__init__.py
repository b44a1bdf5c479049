"""What a fleet coordinates itself with: locks, processes, issues, queues, config, flags, stats, channels."""
