"""Which paths of each model clients may use. Everything else is 404."""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.errors import NotFound


def require_offered(offers: Mapping[str, frozenset[str]], path: str, model: str | None = None) -> None:
    """``offers`` are the paths of each model. Without a ``model``, at least one model must offer the path.

    The path is the decoded one and is compared exactly: a path with dots, escapes or double slashes never
    matches.

    Raises: NotFound.
    """
    offered = frozenset[str]().union(*offers.values()) if model is None else offers[model]
    if path in offered:
        return
    who = "No model offers" if model is None else f"The model {model!r} does not offer"
    raise NotFound(
        f"{who} POST {path}; offered: {', '.join(sorted(offered))} (settings: models[].paths, "
        "models[].upstreams[].paths).",
        code="path_not_offered",
    )
