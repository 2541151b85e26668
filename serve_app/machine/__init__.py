"""What a machine offers, and what the application would miss there: for ``promptly doctor`` and ``init``."""

from serve_app.machine.facts import Facts, Gpu, Hub, Kind, Wants
from serve_app.machine.finding import Finding, Verdict

__all__ = ["Facts", "Finding", "Gpu", "Hub", "Kind", "Verdict", "Wants"]
