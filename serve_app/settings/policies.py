"""Names of registered policies, checked where settings name one."""

from __future__ import annotations

from serve_app.routing import POLICIES


def known_policy(name: str) -> str:
    """Raises: ValueError: no routing policy has this name; the known ones are listed."""
    if name not in POLICIES:
        raise ValueError(f"unknown routing policy; expected one of: {', '.join(sorted(POLICIES))}")
    return name
