"""Chat and text completions: admit, find an answer, record."""
