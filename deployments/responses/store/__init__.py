"""Where responses are kept: the contract, and its implementations by name."""
