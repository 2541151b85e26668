"""What Serve calls the deployments of a model's engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ENGINE = "Engine:"
"""What the names of the engines' deployments begin with."""

PREFILL = "Prefill:"
"""What those of prefill replicas begin with."""


def engine_deployment(model_id: str, prefix: str = ENGINE) -> str:
    """The name of the deployment of a model's engines, as ``ray.serve.llm`` makes it."""
    return prefix + model_id.replace("/", "--").replace(".", "_")


def shared_deployments(model_ids: Iterable[str]) -> Iterator[str]:
    """One line for each model whose deployment would have the name of an earlier model's: Serve would rename
    the second one, and a new config would not know which is which."""
    found: dict[str, str] = {}
    for model_id in model_ids:
        name = engine_deployment(model_id)
        if name in found:
            yield (
                f"models {found[name]!r} and {model_id!r}: the engines of both would be called {name!r} in "
                "Serve; give one of them another `id`, and this one as an alias"
            )
        found.setdefault(name, model_id)
