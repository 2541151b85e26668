"""Responses that are kept for later: the values that gateways and the store exchange."""
