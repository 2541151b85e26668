"""Runs suites against targets over HTTP, and writes what came of it."""
