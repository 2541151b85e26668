"""Finds settings that are valid but probably a mistake. A start prints them as warnings and goes on."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.settings.paths import doubtful_paths
from serve_app.settings.root import Settings


def doubts(settings: Settings) -> Iterator[str]:
    """One line for each: the setting, its value, and the likely mistake."""
    for number, model in enumerate(settings.models):
        where = f"models[{number}]"
        if model.engine is not None:
            yield from doubtful_paths(f"{where}.paths", model.paths, is_vendor=False)
        for index, upstream in enumerate(model.upstreams):
            setting = f"{where}.upstreams[{index}].paths"
            yield from doubtful_paths(setting, upstream.paths, is_vendor=upstream.kind == "openai")
