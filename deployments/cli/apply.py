"""Change a running application to another config file, in place.

    promptly apply new.yaml --dry-run     what would change, and what it needs of the cluster
    promptly apply new.yaml               do it, and wait until it is done
    promptly apply --back                 the config before the last `promptly apply`

Only what the new file changes is replaced: engines when their own settings change, gateways at any change. A
new replica starts before an old one stops, and the old one finishes its answers. Nothing is stopped where the
new config is wrong or the cluster has no room for it: one message says why, exit status 1.

It asks Ray's dashboard. A start of `promptly serve` prints the file of variables that name it (`source
/tmp/promptly-…/env`); elsewhere set RAY_DASHBOARD_ADDRESS, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deployments.cli.serve_api import ApiError, Refused, ServeApi, dashboard_of
from deployments.launcher.config import ConfigError, load_document
from deployments.launcher.status import parse_applications
from serve_app.errors import SettingsError
from serve_app.file_errors import said_of
from serve_app.model_store import default_cache_dir
from serve_app.request.admin_token import write_secret
from serve_app.settings import Settings, load_file, parse_args
from serve_app.upgrades import Change, Effect, changes, rolling_problems, told_needs

TIMEOUT_S = 1800.0
"""A large model takes minutes to load, and an old engine minutes to drain."""

POLL_S = 0.5
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

KEPT_KEYS = ("http_options", "grpc_options", "proxy_location", "controller_options")
"""What Serve reads only when it starts."""

NOT_COMPARED = ("name", "args")
"""Keys of an application: it keeps its name, and its settings are compared part by part."""

DEFAULTS = {"name": "default", "route_prefix": "/"}
"""Serve's, where an application does not say."""

HAS_RUN = frozenset({"RUNNING", "UNHEALTHY"})
"""States of an application whose newest config was in force once."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly apply``."""
    parser.add_argument("config", type=Path, nargs="?", help="the new Serve config file")
    parser.add_argument("--back", action="store_true", help="to the config before the last `promptly apply`")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    parser.add_argument(
        "--stop-first", action="store_true", help="stop each old engine before its replacement starts"
    )
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds; default: 1800")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        if options.back == (options.config is not None):
            raise ConfigError("promptly apply: give a config file, or --back")
        _apply(options, ServeApi(*dashboard_of(os.environ)))
    except (SettingsError, ConfigError, ApiError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what was begun goes on; back: promptly apply --back", file=sys.stderr)
        return INTERRUPTED
    return 0


def _apply(options: argparse.Namespace, api: ServeApi) -> None:
    """Raises: SettingsError, ConfigError, ApiError: one message; nothing is stopped unless it says so."""
    details = api.details()
    running = deployed(details)
    document = _before() if options.back else load_document(options.config)
    source = "the config before" if options.back else str(options.config)
    old = _settings(running, "the running config")
    new = _settings(document, source) if options.back else _only(load_file(options.config), source)
    beside = _beside_settings(running["applications"][0], document["applications"][0], source)
    planned = changes(old, new)
    for line in _told(planned, beside, running, document):
        print(line)
    _check_room(new, planned, api.resources(), source, spare=not options.stop_first)
    if options.dry_run or not (planned or beside):
        return
    wanted = {**document, **{key: running[key] for key in KEPT_KEYS if key in running}}
    if options.stop_first:
        wanted = stopping_first(wanted, planned)
    has_run = all(each.status in HAS_RUN for each in parse_applications(details))
    began = time.monotonic()
    _put(api, wanted, running if has_run else None, back=options.back)
    _wait(api, options.timeout, began)
    if not _is_in_force(api, wanted):
        raise ApiError("another config was applied meanwhile: this one is not in force")
    print(f"done in {time.monotonic() - began:.1f} s; back: promptly apply --back")


def _check_room(
    new: Settings, planned: tuple[Change, ...], resources: Mapping[str, float], source: str, *, spare: bool
) -> None:
    """Print what it needs, if there is room. Raises: SettingsError: there is none."""
    problems = list(rolling_problems(new, planned, resources, spare=spare))
    if problems:
        raise SettingsError("\n".join(f"{source}: {problem}" for problem in problems))
    for line in told_needs(new, planned, resources, spare=spare) if planned else ():
        print(line)


def deployed(details: Mapping[str, Any]) -> dict[str, Any]:
    """The config file that runs, as Serve knows it. Raises: ApiError: no application runs, or not one of a
    config file."""
    found = details.get("applications") or {}
    configs = [each.get("deployed_app_config") for each in found.values()]
    if not configs or None in configs:
        raise ApiError("no application of a config file runs there: start it with `promptly serve FILE`")
    kept = {key: details[key] for key in KEPT_KEYS if details.get(key) is not None}
    return {**kept, "applications": configs}


def _put(api: ServeApi, wanted: Mapping[str, Any], running: Mapping[str, Any] | None, *, back: bool) -> None:
    """``running`` is kept as the way back, unless what is put is refused; ``None``: it has never run, and the
    way back is the one of before. On the way back that is not lost before it is put. Raises: ApiError."""
    if running is None:
        api.put(wanted)
    elif back:
        api.put(wanted)
        _keep(running)
    else:
        before = _kept()
        _keep(running)
        try:
            api.put(wanted)
        except Refused:
            if before is not None:
                _keep(before)
            raise


def stopping_first(document: Mapping[str, Any], planned: tuple[Change, ...]) -> dict[str, Any]:
    """The config with Serve's own option that lets the rolled engines start no spare replica."""
    first, *others = document["applications"]
    rolled = [f"Engine:{each.model}" for each in planned if each.model and each.effect is Effect.ROLLED]
    own = {each["name"]: each for each in first.get("deployments") or []}
    for name in rolled:
        own[name] = {**own.get(name, {"name": name}), "max_surge_percent": 0}
    return {**document, "applications": [{**first, "deployments": list(own.values())}, *others]}


def _settings(document: Mapping[str, Any], source: str) -> Settings:
    applications = document["applications"]
    return _only(tuple(parse_args(each.get("args") or {}, source=source) for each in applications), source)


def _only(found: tuple[Settings, ...], source: str) -> Settings:
    """Raises: SettingsError: there are several applications."""
    if len(found) != 1:
        raise SettingsError(f"{source}: {len(found)} applications: `promptly apply` changes one")
    return found[0]


def _beside_settings(running: Mapping[str, Any], asked: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The keys of the application that differ, beside its settings. Raises: SettingsError: it is another
    application, which would start when the running one is gone."""
    now, new = _told_keys(running, "the running config"), _told_keys(asked, source)
    if now["name"] != new["name"]:
        raise SettingsError(
            f"{source}: applications[].name = {new['name']!r}: {now['name']!r} runs there, which "
            f"`promptly apply` changes in place; expected {now['name']!r}"
        )
    return tuple(key for key in sorted({*now, *new} - {*NOT_COMPARED}) if now.get(key) != new.get(key))


def _told_keys(application: Mapping[str, Any], source: str) -> dict[str, Any]:
    """As Serve takes an application, without what an earlier ``--stop-first`` has left in it. Raises:
    SettingsError."""
    found = {key: value for key, value in application.items() if value}
    given = found.pop("deployments", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) and "name" in each for each in given):
        raise SettingsError(f"{source}: applications[].deployments: expected a list of mappings with a name")
    others = [each for each in given if each.keys() - {"name", "max_surge_percent"}]
    return {**DEFAULTS, **found, **({"deployments": others} if others else {})}


def _told(
    planned: tuple[Change, ...],
    beside: tuple[str, ...],
    running: Mapping[str, Any],
    document: Mapping[str, Any],
) -> Iterator[str]:
    if not (planned or beside):
        yield "nothing changes"
    yield from (str(change) for change in planned)
    yield from (f"applications[].{key}: changed: Serve may replace every part" for key in beside)
    for key in KEPT_KEYS:
        asked, now = document.get(key), running.get(key)
        if isinstance(asked, Mapping) and isinstance(now, Mapping):
            asked = {**now, **asked}
        if asked is not None and asked != now:
            yield f"{key}: {Effect.KEPT.value}"


def _file() -> Path:
    return default_cache_dir() / "applied.json"


def _keep(running: Mapping[str, Any]) -> None:
    """Raises: ApiError: there is nowhere to keep it, so there would be no way back."""
    try:
        write_secret(_file(), json.dumps(running))
    except OSError as error:
        raise ApiError(f"the running config cannot be kept for --back: {said_of(error)}") from error


def _kept() -> dict[str, Any] | None:
    """``None``: nothing was applied from this machine, or the file is not what was kept."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
        (application,) = found["applications"]
        return found if isinstance(application, dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _before() -> dict[str, Any]:
    """Raises: ConfigError: there is none."""
    found = _kept()
    if found is None:
        raise ConfigError(f"promptly apply --back: {_file()} has no config to go back to")
    return found


def _is_in_force(api: ServeApi, wanted: Mapping[str, Any]) -> bool:
    """Whether nobody else has applied another config since."""
    asked = json.loads(json.dumps(wanted["applications"][0].get("args"), default=str))
    return bool(deployed(api.details())["applications"][0].get("args") == asked)


def _wait(api: ServeApi, timeout_s: float, began: float) -> None:
    """Print each part's progress once. Raises: ApiError: it failed, or was not done in time."""
    said = ""
    while time.monotonic() - began < timeout_s:
        time.sleep(POLL_S)
        applications = parse_applications(api.details())
        failed = [each.failure() for each in applications if each.has_failed]
        if failed:
            raise ApiError("\n".join([*failed, "old replicas go on; back: promptly apply --back"]))
        waiting = [
            str(part) for each in applications for part in each.deployments if part.status != "HEALTHY"
        ]
        if "; ".join(waiting) != said:
            said = "; ".join(waiting)
            print(f"  {time.monotonic() - began:5.1f} s  {said or 'every part runs'}", flush=True)
        if applications and all(each.status == "RUNNING" for each in applications):
            return
    raise ApiError(f"not done after {timeout_s:.0f} s; it goes on; back: promptly apply --back")
