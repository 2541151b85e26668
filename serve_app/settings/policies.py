"""The names of policies and rules that settings may use. The code of each is registered in its own folder."""

from __future__ import annotations

import re

ROUTING_POLICIES = ("least_wait", "prefix", "round_robin", "session")
"""The keys of ``serve_app.routing.POLICIES``."""

MODEL_RULES = ("cheapest-that-fits",)
"""The keys of ``serve_app.model_choice.RULES``."""

FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def known_policy(name: str) -> str:
    """Raises: ValueError: no routing policy has this name; the message lists them."""
    if name not in ROUTING_POLICIES:
        raise ValueError(f"unknown routing policy; expected one of: {', '.join(ROUTING_POLICIES)}")
    return name


def known_rule(name: str) -> str:
    """Raises: ValueError: it is neither a known rule nor the name of a function."""
    if name not in MODEL_RULES and not FUNCTION.fullmatch(name):
        raise ValueError(
            f"unknown rule; expected one of: {', '.join(MODEL_RULES)}, or a function as `module:function`"
        )
    return name
