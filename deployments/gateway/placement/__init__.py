"""Which member of the fleet takes a request, and which requests wait in the queue."""
