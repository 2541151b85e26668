"""Which paths of each model clients may use. Everything else is 404."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serve_app.errors import NotFound
from serve_app.fleet import EngineReport

UNSALTED = frozenset({"/v2/embed"})
"""Paths whose requests vLLM caches by their prefix, but for which it has no `cache_salt`."""


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


def require_task(reports: Sequence[EngineReport], path: str, model: str) -> None:
    """``reports`` are those of the members of ``model``. An engine offers only the paths of the tasks that
    its model turned out to have.

    Raises: NotFound: every member is an engine that has another task.
    """
    if not reports or any(path in report.paths or not report.tasks for report in reports):
        return
    tasks = sorted({task for report in reports for task in report.tasks})
    offered = sorted(frozenset[str]().union(*(report.paths for report in reports)))
    raise NotFound(
        f"The model {model!r} does not answer POST {path}: its task is {', '.join(tasks)}, with the paths "
        f"{', '.join(offered)}.",
        code="path_not_offered",
    )


def require_no_shared_prefix(reports: Sequence[EngineReport], path: str, model: str) -> None:
    """``reports`` are those of the members of ``model``, which more than one tenant asks.

    Raises: NotFound: a member would show by its pace which prefixes other tenants sent.
    """
    if path in UNSALTED and any(report.shows_prefixes for report in reports):
        raise NotFound(
            f"The model {model!r} does not answer POST {path} where tenants have keys: an engine that caches "
            "prefixes would share them among tenants there. POST /v1/embeddings keeps them apart (settings: "
            "gateway.share_prefixes, engine.enable_prefix_caching, models[].upstreams[].paths).",
            code="path_not_offered",
        )
