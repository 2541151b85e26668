"""Benchmarks: a load generator, figures and their tables, and one module per question."""
