"""The learned verifier of the cache's decision: words, features, forest, and the trained files."""
