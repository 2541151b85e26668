"""One version of a prompt: its messages with their variables, read once, filled in for each request."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from serve_app.errors import BadRequest, SettingsError

ROLES = ("system", "developer", "user", "assistant")
PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
"""Where the value of a variable goes: ``{{name}}``, blanks allowed."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SHOWN_CHARS = 80

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a text for the value of a variable."""

    variable: str


@dataclass(frozen=True, slots=True)
class Template:
    """One message. ``parts`` were cut when the file was read, so a value is never looked at for places."""

    role: str
    parts: tuple[str | Slot, ...]

    @property
    def text(self) -> str:
        """The version as its file has it."""
        return "".join(part if isinstance(part, str) else f"{{{{{part.variable}}}}}" for part in self.parts)

    def size(self, values: Mapping[str, str]) -> int:
        """Characters of the filled text."""
        return sum(len(part if isinstance(part, str) else values[part.variable]) for part in self.parts)

    def filled(self, values: Mapping[str, str]) -> Message:
        texts = (part if isinstance(part, str) else values[part.variable] for part in self.parts)
        return {"role": self.role, "content": "".join(texts)}


def template(role: str, text: str, declared: Collection[str], where: str) -> Template:
    """``declared``: the variables that may stand in it. Raises: SettingsError."""
    if role not in ROLES:
        raise SettingsError(f"{where}: role = {role!r}: expected one of {', '.join(ROLES)}")
    parts: list[str | Slot] = []
    end = 0
    for found in PLACE.finditer(text):
        name = found[1].strip()
        if name not in declared:
            raise SettingsError(f"{where}: `{{{{{name[:SHOWN_CHARS]}}}}}` is not among its `variables`")
        parts += [text[end : found.start()], Slot(name)]
        end = found.end()
    parts.append(text[end:])
    return Template(role, tuple(part for part in parts if part != ""))


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """``variables``: by name the default, ``None`` where a request must give one. ``digest`` is that of the
    file: what was answered before a version was edited in place is not served for it afterwards."""

    name: str
    messages: tuple[Template, ...]
    variables: Mapping[str, str | None]
    digest: str

    def filled(self, given: Mapping[str, str], most_chars: int) -> tuple[Message, ...]:
        """The messages with these values, which are text: nothing in them is a place for a value again.

        Raises:
            BadRequest: a variable is not known or missing, or the text is longer than ``most_chars``.
        """
        for name in given.keys() - self.variables.keys():
            known = ", ".join(self.variables) or "none"
            raise _wrong(name, f"is no variable of this version; it has: {known}", "unknown_prompt_variable")
        values: dict[str, str] = {}
        for name, default in self.variables.items():
            value = given.get(name, default)
            if value is None:
                raise _wrong(name, "has no value", "missing_prompt_variable")
            values[name] = value
        size = sum(each.size(values) for each in self.messages)
        if size > most_chars:
            raise BadRequest(
                f"With its variables the prompt has {size} characters; at most {most_chars} are allowed "
                "(prompts.max_chars).",
                param="prompt.variables",
                code="prompt_too_large",
            )
        return tuple(each.filled(values) for each in self.messages)


def unused(messages: Iterable[Template], declared: Collection[str]) -> list[str]:
    """The declared variables that stand in no message."""
    used = {part.variable for each in messages for part in each.parts if isinstance(part, Slot)}
    return [name for name in declared if name not in used]


def _wrong(name: str, what: str, code: str) -> BadRequest:
    param = f"prompt.variables.{name[:SHOWN_CHARS]}"
    return BadRequest(f"`{param}` {what}.", param=param, code=code)
