"""Reads the files of prompts. A version is Markdown, whose text is one message, or YAML, a list of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import yaml

from serve_app.errors import SettingsError
from serve_app.prompts.version import NAME, PromptVersion, template, unused
from serve_app.request.auth import TENANT_PATTERN

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Ids of prompts, versions and labels: names of files and folders on every system."""

ABOUT = "prompt.yaml"
"""Beside the versions of a prompt, where more is said of it."""

MARKDOWN, YAML = (".md",), (".yaml", ".yml")
FENCE = "---"
VERSION_KEYS = {"description", "variables", "messages", "role"}
ABOUT_KEYS = {"description", "tenants"}


def read_version(name: str, content: bytes, suffix: str, where: str) -> PromptVersion:
    """Raises: SettingsError: file, key, and what was expected."""
    text = _text(content, where)
    if suffix in MARKDOWN:
        fields, body = _front_matter(text, where)
        _refuse_unknown(fields, VERSION_KEYS - {"messages"}, where)
        messages: Any = [{"role": fields.get("role", "system"), "content": body}]
    else:
        fields = mapping(text, where)
        _refuse_unknown(fields, VERSION_KEYS - {"role"}, where)
        messages = fields.get("messages")
    variables = _variables(fields.get("variables"), where)
    if not isinstance(messages, list) or not messages:
        raise SettingsError(f"{where}: messages: expected a list with `role` and `content` each")
    made = tuple(_message(each, number, variables, where) for number, each in enumerate(messages))
    for variable in unused(made, variables):
        raise SettingsError(f"{where}: variables.{variable}: no message uses it")
    return PromptVersion(name, made, variables, hashlib.sha256(content).hexdigest()[:16])


def read_tenants(content: bytes, where: str) -> frozenset[str] | None:
    """Who may use the prompt, of its ``prompt.yaml``; ``None``: everybody. Raises: SettingsError."""
    fields = mapping(_text(content, where), where)
    _refuse_unknown(fields, ABOUT_KEYS, where)
    tenants = fields.get("tenants")
    if tenants is None:
        return None
    if not isinstance(tenants, list) or not all(
        isinstance(each, str) and re.match(TENANT_PATTERN, each) for each in tenants
    ):
        raise SettingsError(f"{where}: tenants: expected a list of names of tenants")
    return frozenset(tenants)


def mapping(text: str, where: str) -> dict[str, Any]:
    """Raises: SettingsError: it is no YAML, or no mapping."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        what = getattr(error, "problem", None) or "it cannot be read"
        raise SettingsError(f"{where}{line}: no valid YAML: {what}") from None
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SettingsError(f"{where}: expected `key: value`")
    return value


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise SettingsError(f"{where}: expected UTF-8") from None


def _front_matter(text: str, where: str) -> tuple[dict[str, Any], str]:
    """The keys between two lines ``---`` at the beginning, and the text behind them."""
    first, _, rest = text.partition("\n")
    if first.rstrip() != FENCE:
        return {}, text.strip("\n")
    head, found, body = f"\n{rest}".partition(f"\n{FENCE}\n")
    if not found:
        raise SettingsError(f"{where}: the front matter has no second line `{FENCE}`")
    return mapping(head, where), body.strip("\n")


def _variables(value: Any, where: str) -> dict[str, str | None]:
    """A list of names, each of which a request must give; or a mapping of names to defaults."""
    if value is None:
        return {}
    given = dict.fromkeys(value) if isinstance(value, list) and _hashable(value) else value
    if not isinstance(given, Mapping):
        raise SettingsError(f"{where}: variables: expected names, or names with defaults")
    for name, default in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise SettingsError(f"{where}: variables: {name!r}: expected letters, digits and `_`")
        if not isinstance(default, str | None):
            raise SettingsError(
                f"{where}: variables.{name} = {default!r}: expected a text in quotes, or null"
            )
    return dict(given)


def _hashable(values: list[Any]) -> bool:
    return all(isinstance(each, str) for each in values)


def _message(value: Any, number: int, variables: Mapping[str, str | None], where: str) -> Any:
    at = f"{where}: messages[{number}]"
    if not isinstance(value, dict) or value.keys() != {"role", "content"}:
        raise SettingsError(f"{at}: expected `role` and `content`")
    role, content = value["role"], value["content"]
    if not isinstance(role, str) or not isinstance(content, str) or not content.strip():
        raise SettingsError(f"{at}: expected `role` and `content` as texts that are not empty")
    return template(role, content, variables, at)


def _refuse_unknown(fields: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in fields.keys() - known:
        raise SettingsError(f"{where}: {name}: unknown key; expected {', '.join(sorted(known))}")
