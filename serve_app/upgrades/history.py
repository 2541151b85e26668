"""Which configs of an application were in force last: where a way back leads, and with what a new one is
compared while the one applied last has not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serve_app.errors import SettingsError
from serve_app.settings import Settings
from serve_app.upgrades.changes import Change, Effect, changes

Document = Mapping[str, Any]
"""A Serve config file with one application."""

DEFAULTS = {"name": "default", "route_prefix": "/"}
"""Serve's, where an application does not say."""

RUNNING, UNHEALTHY = "RUNNING", "UNHEALTHY"
HAS_RUN = frozenset({RUNNING, UNHEALTHY})
"""States of an application whose newest config was in force once, as far as Serve can tell."""

NOT_COMPARED = ("name", "args")
"""Keys of an application: it keeps its name, and its settings are compared part by part."""


@dataclass(frozen=True, slots=True)
class History:
    """``in_force``: at most two, the newest first. ``asked``: what was applied last, until it is seen to run.
    Both are as their files have them where they were applied from here."""

    in_force: tuple[Document, ...] = ()
    asked: Document | None = None

    def has_run(self, running: Document, status: str) -> bool:
        """Whether ``running`` was in force once, by Serve's ``status`` of it. One that was seen to run may
        be starting anew. Serve says ``UNHEALTHY`` as soon as one part is, also of a config whose other parts
        have not come yet: one that was applied from here has run only if it was seen to."""
        was_in_force = bool(self.in_force) and is_same(self.in_force[0], running)
        if self.asked is None:
            return was_in_force or status in HAS_RUN
        if status != UNHEALTHY or not is_same(self.asked, running):
            return status in HAS_RUN
        return was_in_force

    def seen(self, running: Document, *, has_run: bool) -> History:
        """``running``: the config that Serve has. One that never ran is not a way back. What an earlier
        ``--stop-first`` has left in it is not kept."""
        if not has_run:
            return self
        if self.in_force and is_same(self.in_force[0], running):
            return replace(self, asked=None)
        asked = self.asked
        newest = running if asked is None or not is_same(asked, running) else asked
        return History((newest, *self.in_force[:1]))

    def asking(self, wanted: Document, running: Document, *, has_run: bool) -> History:
        """``wanted`` is applied. The config in force stays so where it is applied once more."""
        return self if has_run and is_same(wanted, running) else replace(self, asked=wanted)

    def back(self, *, has_run: bool) -> Document | None:
        """The way back from the config that was seen last; from one that never ran, to the one before it."""
        there = self.in_force[1:] if has_run else self.in_force
        return there[0] if there else None

    def behind(self, running: Document, *, has_run: bool) -> Document | None:
        """What still runs, in whole or in part, while ``running`` has not. ``None``: that is not known,
        because it was applied elsewhere."""
        if has_run or self.asked is None or not is_same(self.asked, running):
            return None
        return self.back(has_run=False)


def is_same(one: Document, other: Document) -> bool:
    """Whether Serve makes the same application of both."""
    applications = [each["applications"][0] for each in (one, other)]
    first, second = (told_keys(each, "a config") for each in applications)
    return first == second


def told_keys(application: Mapping[str, Any], source: str) -> dict[str, Any]:
    """As Serve takes an application, without what an earlier ``--stop-first`` has left in it. Raises:
    SettingsError."""
    found = {key: value for key, value in application.items() if value}
    given = found.pop("deployments", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) and "name" in each for each in given):
        raise SettingsError(f"{source}: applications[].deployments: expected a list of mappings with a name")
    others = [each for each in given if each.keys() - {"name", "max_surge_percent"}]
    return {**DEFAULTS, **found, **({"deployments": others} if others else {})}


def differing_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of two applications, as :func:`told_keys` has them, that differ beside their settings."""
    return tuple(key for key in sorted({*one, *other} - {*NOT_COMPARED}) if one.get(key) != other.get(key))


def taken_back(never_ran: Settings, new: Settings, planned: tuple[Change, ...]) -> Iterator[Change]:
    """Beside ``planned``, which begins at the config that is in force: the parts that one which never ran may
    have replaced already."""
    known = {change.part for change in planned if change.effect is not Effect.SCALED}
    for change in changes(never_ran, new):
        if change.part not in known:
            rolls = change.effect in (Effect.ROLLED, Effect.RESTARTED)
            yield replace(change, effect=Effect.TAKEN_BACK) if rolls else change
