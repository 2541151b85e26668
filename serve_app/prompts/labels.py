"""Labels: names such as ``production`` that stand for a version, and the versions that they stood for before.

The file is YAML, written by ``promptly prompts`` or by hand:

    labels:
      support-reply: {production: "2", staging: "3"}
    history:
      support-reply:
        production: [{version: "1", until: "2026-11-23T17:00:00Z"}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import yaml

from serve_app.errors import SettingsError
from serve_app.prompts.files import ID, mapping

FILE = "labels.yaml"
PRODUCTION = "production"
"""What a request gets that names no version."""

KEPT = 20
"""Former versions of a label that are remembered."""

Key = tuple[str, str]
"""A prompt and a label."""


@dataclass(frozen=True, slots=True)
class Former:
    """``until``: when it was replaced, ISO 8601."""

    version: str
    until: str


@dataclass(frozen=True, slots=True)
class Labels:
    versions: Mapping[Key, str] = field(default_factory=dict)
    history: Mapping[Key, tuple[Former, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, where: str) -> Self:
        """Raises: SettingsError: file, key, and what was expected."""
        fields = mapping(text, where)
        for name in fields.keys() - {"labels", "history"}:
            raise SettingsError(f"{where}: {name}: unknown key; expected labels, history")
        versions = {
            key: _name(value, f"{where}: labels.{'.'.join(key)}")
            for key, value in _entries(fields.get("labels"), f"{where}: labels")
        }
        history = {
            key: _former(value, f"{where}: history.{'.'.join(key)}")
            for key, value in _entries(fields.get("history"), f"{where}: history")
        }
        return cls(versions, history)

    def of(self, prompt: str) -> dict[str, str]:
        """The labels of one prompt with their versions."""
        return {label: version for (owner, label), version in self.versions.items() if owner == prompt}

    def promoted(self, prompt: str, label: str, version: str, now: str) -> Self:
        """Labels with this one at another version. ``now``: ISO 8601. Raises: SettingsError."""
        key, former = (prompt, label), self.versions.get((prompt, label))
        if version == label or not ID.fullmatch(label):
            raise SettingsError(f"{label!r}: expected a label of letters, digits, `_`, `.` and `-`")
        if former == version:
            return self
        kept = self.history.get(key, ())
        if former is not None:
            kept = (*kept, Former(former, now))[-KEPT:]
        return replace(self, versions={**self.versions, key: version}, history={**self.history, key: kept})

    def rolled_back(self, prompt: str, label: str) -> Self:
        """Labels with this one at the version before. Raises: SettingsError: none is remembered."""
        key = (prompt, label)
        kept = self.history.get(key, ())
        if not kept:
            raise SettingsError(f"{prompt}: the label {label!r} has no former version to go back to")
        return replace(
            self,
            versions={**self.versions, key: kept[-1].version},
            history={**self.history, key: kept[:-1]},
        )

    def written(self) -> str:
        """The file's text."""
        labels: dict[str, dict[str, str]] = {}
        for (prompt, label), version in sorted(self.versions.items()):
            labels.setdefault(prompt, {})[label] = version
        history: dict[str, dict[str, list[dict[str, str]]]] = {}
        for (prompt, label), kept in sorted(self.history.items()):
            if kept:
                former = [{"version": each.version, "until": each.until} for each in kept]
                history.setdefault(prompt, {})[label] = former
        return yaml.safe_dump({"labels": labels, "history": history}, sort_keys=False)


def _entries(value: Any, where: str) -> Iterator[tuple[Key, Any]]:
    if value is None:
        return
    if not isinstance(value, dict):
        raise SettingsError(f"{where}: expected prompts with their labels")
    for prompt, labels in value.items():
        if not isinstance(labels, dict):
            raise SettingsError(f"{where}.{prompt}: expected labels with their versions")
        for label, entry in labels.items():
            yield (_name(prompt, where), _name(label, f"{where}.{prompt}")), entry


def _name(value: Any, where: str) -> str:
    """A number without quotes is meant as a name, except ``1.10``, which YAML reads as 1.1."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not ID.fullmatch(text):
        raise SettingsError(f"{where} = {value!r}: expected a name in quotes")
    return text


def _former(value: Any, where: str) -> tuple[Former, ...]:
    if not isinstance(value, list) or not all(
        isinstance(each, dict) and each.keys() == {"version", "until"} for each in value
    ):
        raise SettingsError(f"{where}: expected a list with `version` and `until` each")
    return tuple(Former(_name(each["version"], where), str(each["until"])) for each in value)
