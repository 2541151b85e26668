"""Benchmarks: a load generator, figures and tables, and one module per benchmark."""
