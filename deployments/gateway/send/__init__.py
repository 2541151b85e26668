"""To a member and back: attempts, continuation, relay."""
