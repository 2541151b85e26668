"""The values that replicas exchange, and how they prove their identity."""
