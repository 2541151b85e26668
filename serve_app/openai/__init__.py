"""OpenAI's wire format: reading requests, and writing answers from the cache."""
