"""CPUs of an engine that runs without a GPU."""
