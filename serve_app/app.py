"""The application that a config file names: ``import_path: serve_app.app:build``."""

from deployments.graph import build

__all__ = ["build"]
