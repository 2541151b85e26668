"""The difference between two configs of one application, in the parts that run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from serve_app.settings import ModelSettings, Settings
from serve_app.settings.deployment_names import engine_deployment
from serve_app.upgrades.versions import KEEPERS, engine_part, part_versions

GATEWAYS = "gateways"
PROXIES = "proxies"


class Effect(Enum):
    """What happens to a part; the value is what is printed."""

    ADDED = "added"
    REMOVED = "removed: its running answers finish"
    ROLLED = "replaced one at a time: the new one starts first, running answers finish"
    RESTARTED = "restarted: it is away for seconds, and requests go on without it"
    TAKEN_BACK = "back, where the config that never ran has replaced it already"
    SCALED = "another number of replicas, none is replaced"
    KEPT = "not before the next start"


ENGINES_START = frozenset({Effect.ROLLED, Effect.TAKEN_BACK})
"""With them a new engine starts beside an old one."""

AWAY_FOR_SECONDS = frozenset({"SemanticCache", "Responses", "Accounts", "Feedback"})
"""They own a file, which two processes must not have open at once."""


@dataclass(frozen=True, slots=True)
class Change:
    """``part``: in words; ``settings``: the paths of the settings that differ, without values, which may be
    secret. ``model``: of an engine."""

    part: str
    effect: Effect
    settings: tuple[str, ...] = ()
    model: str | None = None

    def __str__(self) -> str:
        why = f" ({', '.join(self.settings)})" if self.settings else ""
        return f"{self.part}: {self.effect.value}{why}"


def changes(old: Settings, new: Settings) -> tuple[Change, ...]:
    """What has to happen to get from ``old`` to ``new``; nothing if they are equal."""
    if old == new:
        return ()
    paths = tuple(differing(old.model_dump(mode="json"), new.model_dump(mode="json")))
    found = [*_engines(old, new), *_keepers(old, new)]
    if any(path.startswith("proxy") for path in paths):
        found.append(Change(PROXIES, Effect.KEPT, tuple(path for path in paths if path.startswith("proxy"))))
    others = tuple(path for path in paths if not path.startswith("proxy"))
    # Gateways read every setting, so that any change replaces them.
    return (*found, Change(GATEWAYS, Effect.ROLLED, others[:SHOWN]))


SHOWN = 6
"""Settings that are named for one part."""


def differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The paths where two documents differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from differing(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
    elif old != new:
        yield path


def _engines(old: Settings, new: Settings) -> Iterator[Change]:
    before, after = _by_id(old), _by_id(new)
    versions = part_versions(old), part_versions(new)
    for name in sorted({*before, *after}):
        part, deployment = f"model {name}", engine_deployment(name)
        if name not in before:
            yield Change(part, Effect.ADDED, model=name)
        elif name not in after:
            yield Change(part, Effect.REMOVED, model=name)
        elif versions[0][deployment] != versions[1][deployment]:
            why = tuple(differing(engine_part(before[name]), engine_part(after[name])))
            yield Change(part, Effect.ROLLED, why[:SHOWN] or ("network",), name)
        elif before[name].replicas != after[name].replicas:
            yield Change(part, Effect.SCALED, ("replicas",), name)


def _keepers(old: Settings, new: Settings) -> Iterator[Change]:
    before, after = part_versions(old), part_versions(new)
    for name, section in KEEPERS.items():
        if name in before and name not in after:
            yield Change(section, Effect.REMOVED)
        elif name in after and name not in before:
            yield Change(section, Effect.ADDED)
        elif before.get(name) != after.get(name):
            effect = Effect.RESTARTED if name in AWAY_FOR_SECONDS else Effect.ROLLED
            yield Change(section, effect, tuple(_section_paths(old, new, section))[:SHOWN])


def _section_paths(old: Settings, new: Settings, section: str) -> Iterator[str]:
    values = (getattr(each, section) for each in (old, new))
    dumped = [value.model_dump(mode="json") for value in values]
    return (f"{section}.{path}" for path in differing(*dumped))


def _by_id(settings: Settings) -> dict[str, ModelSettings]:
    """The models with engines, as these run them."""
    return {model.id: model for model in settings.engine_models if model.engine is not None}
