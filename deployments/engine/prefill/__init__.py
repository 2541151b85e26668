"""Engines that prefill for other engines."""
