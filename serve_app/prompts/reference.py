"""What a request says of a prompt: ``prompt: {id, version, variables}``, as in the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from serve_app.errors import BadRequest

KEYS = ("id", "version", "variables")


@dataclass(frozen=True, slots=True)
class Reference:
    """``version`` is one, or a label; ``None``: the label ``production``."""

    id: str
    version: str | None
    variables: Mapping[str, str]

    @classmethod
    def of(cls, value: Any) -> Self:
        """Raises: BadRequest: ``param`` is the wrong field."""
        if not isinstance(value, dict):
            raise _wrong("prompt", "must be an object with `id`, and `version` and `variables` if needed")
        for name in value.keys() - set(KEYS):
            raise _wrong(f"prompt.{name[:80]}", f"is not known; expected {', '.join(KEYS)}")
        named, version, variables = value.get("id"), value.get("version"), value.get("variables")
        if not isinstance(named, str) or not named:
            raise _wrong("prompt.id", "must be the name of a prompt")
        if not isinstance(version, str | None) or version == "":
            raise _wrong("prompt.version", "must be a text: a version or a label")
        if not isinstance(variables, dict | None):
            raise _wrong("prompt.variables", "must be an object")
        return cls(named, version, {name: _text(name, given) for name, given in (variables or {}).items()})


def _text(name: str, value: Any) -> str:
    """OpenAI allows a text as an item, too."""
    if isinstance(value, dict) and value.get("type") == "input_text" and value.keys() == {"type", "text"}:
        value = value["text"]
    if not isinstance(value, str):
        raise _wrong(f"prompt.variables.{name[:80]}", "must be a text")
    return value


def _wrong(param: str, what: str) -> BadRequest:
    return BadRequest(f"`{param}` {what}.", param=param, code="invalid_value")
