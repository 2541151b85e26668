"""Keys that are made at run time, and what gateways and their owner (`deployments/accounts/`) exchange."""
