"""Starting an engine: phases, log, environment and warm-up."""
