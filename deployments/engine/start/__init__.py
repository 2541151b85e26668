"""The start of an engine: its phases, its log, its environment, the warm-up."""
