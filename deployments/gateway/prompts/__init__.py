"""Prompts that are files, as one gateway has them."""
