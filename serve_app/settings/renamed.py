"""Settings that were renamed. An old name works until the release that its entry names, with a warning.

A setting that is renamed or moved gets an entry; its old name stays for at least two minor releases. One that
is removed without a successor is refused like any unknown key, and the changelog says so.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.errors import SettingsError

EACH = "[]"


@dataclass(frozen=True)
class Renamed:
    """``to``: the new path. ``gone_in``: the release that no longer knows the old one, such as 0.4."""

    to: str
    gone_in: str


RENAMED: Mapping[str, Renamed] = {}
"""Old path → new path below an application's `args`, such as ``models[].engine.max_len``. Both have the same
lists. Nothing has been renamed since the first release."""


def modern(args: Any, *, source: str, table: Mapping[str, Renamed] = RENAMED) -> tuple[Any, list[str]]:
    """The settings by their new names, and a warning for each old one. ``source``: their origin in messages.

    Raises: SettingsError: a setting is given by its old and its new name.
    """
    if not table or not isinstance(args, Mapping):
        return args, []
    changed = copy.deepcopy(dict(args))
    warnings = [line for old, new in table.items() for line in _rename(changed, old, new, source)]
    return changed, warnings


def _rename(args: dict[str, Any], old: str, new: Renamed, source: str) -> Iterator[str]:
    lists, _, old_tail = old.rpartition(f"{EACH}.")
    _, _, new_tail = new.to.rpartition(f"{EACH}.")
    for where, holder in _elements(args, lists):
        if _missing(holder, old_tail):
            continue
        names = f"{where}{old_tail}", f"{where}{new_tail}"
        if not _missing(holder, new_tail):
            raise SettingsError(
                f"{source}: {names[0]}: the old name of {names[1]}, which is set too; expected only one"
            )
        _put(holder, new_tail, _take(holder, old_tail))
        yield f"{names[0]} is now {names[1]}; the old name works until {new.gone_in}"


def _elements(args: dict[str, Any], lists: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The mappings that a path's lists hold, each with its place; without lists the settings themselves."""
    found: list[tuple[str, Any]] = [("", args)]
    for step in filter(None, lists.split(f"{EACH}.")):
        name = step.removesuffix(EACH)
        found = [
            (f"{where}{name}[{number}].", element)
            for where, holder in found
            for number, element in enumerate(_list_at(holder, name))
        ]
    return ((where, holder) for where, holder in found if isinstance(holder, dict))


def _list_at(holder: Any, path: str) -> list[Any]:
    for part in path.split("."):
        holder = holder.get(part) if isinstance(holder, dict) else None
    return holder if isinstance(holder, list) else []


def _missing(holder: Any, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(holder, dict) or part not in holder:
            return True
        holder = holder[part]
    return False


def _take(holder: dict[str, Any], path: str) -> Any:
    """Remove the value; sections that become empty stay away, too."""
    first, _, rest = path.partition(".")
    if not rest:
        return holder.pop(first)
    value = _take(holder[first], rest)
    if not holder[first]:
        del holder[first]
    return value


def _put(holder: dict[str, Any], path: str, value: Any) -> None:
    *sections, last = path.split(".")
    for section in sections:
        inner = holder.get(section)
        holder[section] = inner if isinstance(inner, dict) else {}
        holder = holder[section]
    holder[last] = value
