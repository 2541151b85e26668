"""Feedback on answers, as one gateway takes it."""
