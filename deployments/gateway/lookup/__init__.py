"""Where an answer may already be: the store, and requests in flight."""
