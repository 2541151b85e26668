"""Disaggregated prefill: engines that prefill for other engines."""
