"""``--set engine.tensor_parallel_size=2`` overrides a value of a config file's first model for one plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from serve_app.errors import SettingsError
from serve_app.settings import Settings, parse_args


def overridden(settings: Settings, assignments: Sequence[str]) -> Settings:
    """``settings`` with each ``key=value`` in its first model; ``key`` is a path below it (``source``,
    ``engine.max_model_len``), the value is YAML, and ``null`` removes the key.

    Raises:
        SettingsError: an assignment without ``=``, or a value that the settings refuse.
    """
    if not assignments:
        return settings
    args = settings.model_dump(exclude_unset=True)
    model: dict[str, Any] = args["models"][0]
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        if not sign or not key:
            raise SettingsError(
                f"--set {assignment}: expected key=value, such as engine.tensor_parallel_size=2"
            )
        _assign(model, key.split("."), _value(assignment, text))
    return parse_args(args, source="--set")


def _assign(mapping: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        inner = mapping.get(part)
        mapping[part] = inner if isinstance(inner, dict) else {}
        mapping = mapping[part]
    if value is None:
        mapping.pop(path[-1], None)
    else:
        mapping[path[-1]] = value


def _value(assignment: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"--set {assignment}: {text!r} is not a YAML value") from error
