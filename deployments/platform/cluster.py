"""What an application's builder needs to know about its cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from deployments.platform.serve import is_connected
from serve_app.engines.placement import check_placement
from serve_app.errors import SettingsError
from serve_app.settings import Settings
from serve_app.settings.deployment_names import ENGINE

FIXED = "PROMPTLY_FIXED_CLUSTER"
"""Set to 1 in the environment of Ray's nodes if no cluster autoscaler will add nodes."""

logger = logging.getLogger("ray.serve")


def check_room(settings: Settings, environment: Mapping[str, str], *, source: str) -> None:
    """Warn of replicas that do not fit into the cluster. Does nothing outside Ray.

    Raises:
        SettingsError: replicas do not fit, and the cluster does not grow. One line per model: the setting and
            a value that would work.
    """
    problems = room_problems(settings)
    if problems and environment.get(FIXED) == "1":
        raise SettingsError("\n".join(f"{source}: {problem}" for problem in problems))
    for problem in problems:
        logger.warning("replicas wait until the cluster has room: %s", problem)


def room_problems(settings: Settings) -> list[str]:
    """One line for each model whose replicas do not fit into the cluster as it is now."""
    if not is_connected():
        return []
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return [str(problem) for problem in check_placement(settings, resources)]


def is_one_node() -> bool:
    """Whether this node is the whole cluster: then a check here holds for every replica."""
    if not is_connected():
        return False
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return len([node for node in nodes if node["Alive"]]) == 1


def engines_run() -> bool:
    """Whether the cluster has engines, of any application: a new config must not end them for a wrong
    argument. True outside Ray, where nothing says that there are none.

    Serve itself does not know while it builds an application anew: it has no deployments then. Their replicas
    are named actors, ``SERVE_REPLICA::application#deployment#id`` in Ray 2.60; when that moves, the engines'
    arguments would be checked in their own process only."""
    if not is_connected():
        return True
    from ray.util import list_named_actors

    return any(f"#{ENGINE}" in each["name"] for each in list_named_actors(all_namespaces=True))
