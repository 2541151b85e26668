"""Adapters to vLLM: its arguments, and all uses of its non-public names."""
