"""Guardrails: which guard looks at which request and answer, and what its verdict does.

``from serve_app.guardrails import Check, Refuse, Replace`` is what a guard that is a Python function needs.
"""

from serve_app.guardrails.contract import Check, Pass, Refuse, Replace, Stage, Text, Verdict

__all__ = ["Check", "Pass", "Refuse", "Replace", "Stage", "Text", "Verdict"]
