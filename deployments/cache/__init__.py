"""The semantic cache: its deployment, its decisions, what it learns, and the store behind it."""
