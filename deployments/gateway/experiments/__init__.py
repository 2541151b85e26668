"""Experiments as one gateway runs them."""
