"""Which member of the fleet takes a request, and who waits."""
