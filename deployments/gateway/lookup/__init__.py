"""Look-ups: an answer may be in the store, in memory, or in flight."""
