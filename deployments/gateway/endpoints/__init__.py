"""The endpoints that do not generate."""
