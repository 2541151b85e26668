"""Change a running application to another config file, in place.

    promptly apply new.yaml --dry-run     what would change, and what it needs of the cluster
    promptly apply new.yaml               do it, and wait until it is done
    promptly apply --back                 the config that was in force before; once more: forth again

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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deployments.cli.raw_options import raw_option_notes
from deployments.cli.serve_api import ApiError, Refused, ServeApi, dashboard_of
from deployments.launcher.config import ConfigError, load_document
from deployments.launcher.plan import GIVEN_PORT
from deployments.launcher.status import parse_applications
from serve_app.errors import SettingsError
from serve_app.file_errors import said_of
from serve_app.model_store import default_cache_dir
from serve_app.request.admin_token import write_secret
from serve_app.settings import Settings, load_file, parse_args
from serve_app.upgrades import (
    ENGINES_START,
    HAS_RUN,
    Change,
    Document,
    Effect,
    History,
    changes,
    differing_keys,
    engine_deployments,
    rolling_problems,
    taken_back,
    told_keys,
    told_needs,
)

TIMEOUT_S = 1800.0
"""A large model takes minutes to load, and an old engine minutes to drain."""

POLL_S = 0.5
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

KEPT_KEYS = ("http_options", "grpc_options", "proxy_location", "controller_options")
"""What Serve reads only when it starts."""

FROM_PYTHON = "imperative"
"""Serve's word for an application that is not of a config file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly apply``."""
    parser.add_argument("config", type=Path, nargs="?", help="the new Serve config file")
    parser.add_argument("--back", action="store_true", help="to the config that was in force before")
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
    status = _status(details)
    kept = _kept()
    has_run = kept.has_run(running, status)
    history = kept.seen(running, has_run=has_run)
    document = _before(history, has_run=has_run) if options.back else load_document(options.config)
    source = "the config before" if options.back else str(options.config)
    new = _settings(document, source) if options.back else _only(load_file(options.config), source)
    behind = history.behind(running, has_run=has_run)
    planned, beside = _planned(running, behind, document, new, source)
    untried = () if has_run else (_not_run(status, behind),)
    for line in (*untried, *_told(planned, beside, running, document)):
        print(line)
    _check_room(new, planned, api.resources(), source, spare=not options.stop_first)
    for note in _raw_notes(new, planned, source):
        print(note)
    if options.dry_run or (has_run and status in HAS_RUN and not (planned or beside)):
        return
    # As Serve gives it back: YAML knows dates.
    wanted = json.loads(json.dumps({**document, **_kept_keys(running)}, default=str))
    asking = history.asking(wanted, running, has_run=has_run)
    began = time.monotonic()
    _keep(asking)
    try:
        api.put(stopping_first(wanted, planned, new) if options.stop_first else wanted)
    except Refused:
        _keep(history)
        raise
    _wait(api, options.timeout, began)
    now = deployed(api.details())
    if now["applications"][0].get("args") != wanted["applications"][0].get("args"):
        raise ApiError("another config was applied meanwhile: this one is not in force")
    _keep(asking.seen(now, has_run=True))
    print(f"done in {time.monotonic() - began:.1f} s; back: promptly apply --back")


def _planned(
    running: Document, behind: Document | None, document: Document, new: Settings, source: str
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """What changes in the parts, and the keys of the application that differ, against what really runs.
    Raises: SettingsError: the new config is another application, or cannot be read."""
    asked = _settings(running, "the running config")
    beside = _beside_settings(running["applications"][0], document["applications"][0], source)
    if behind is None:
        return changes(asked, new), beside
    planned = changes(_settings(behind, "the config in force"), new)
    more = _beside_settings(behind["applications"][0], document["applications"][0], source)
    return (*planned, *taken_back(asked, new, planned)), tuple(sorted({*beside, *more}))


def _raw_notes(new: Settings, planned: tuple[Change, ...], source: str) -> tuple[str, ...]:
    """Of the engines that start. Raises: SettingsError: vLLM does not know one of their raw options."""
    starts = {change.model for change in planned if change.effect in {Effect.ADDED, *ENGINES_START}}
    try:
        return raw_option_notes(model for model in new.models if model.id in starts)
    except SettingsError as error:
        raise SettingsError("\n".join(f"{source}: {line}" for line in str(error).splitlines())) from None


def _not_run(status: str, behind: Document | None) -> str:
    """With what a plan compares while the config applied last has not run."""
    other = "that one, as no other is known here" if behind is None else "the one that was in force before"
    return f"the config that was applied last has not run ({status}); compared with {other}:"


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
    configs = [each["deployed_app_config"] for each in _of_files(details).values()]
    if not configs:
        raise ApiError(_no_file(details.get("applications") or {}))
    return {**_kept_keys(details), "applications": configs}


def _kept_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in KEPT_KEYS if document.get(key) is not None}


def _of_files(details: Mapping[str, Any]) -> dict[str, Any]:
    """The applications of a config file. Serve leaves others beside them as they are."""
    found = details.get("applications") or {}
    return {name: each for name, each in found.items() if each.get("deployed_app_config") is not None}


def _no_file(applications: Mapping[str, Any]) -> str:
    """Why nothing can be changed in place."""
    for name, each in applications.items():
        if each.get("source") == FROM_PYTHON:
            return (
                f"application {name!r} runs there, and it was started from Python (`serve.run`), not from a "
                "config file: it cannot be changed in place; call `serve.run` again, or stop it and start a "
                "file with `promptly serve FILE`"
            )
    for name, each in applications.items():
        return f"application {name!r} is {each.get('status')}, and Serve has no config file of it: try again"
    return "no application runs there: start one with `promptly serve FILE`"


def _status(details: Mapping[str, Any]) -> str:
    """Of the application of the config file; of several, one that has not run."""
    found = [each.status for each in parse_applications({"applications": _of_files(details)})]
    return min(found, key=lambda status: status in HAS_RUN)


def stopping_first(document: Mapping[str, Any], planned: tuple[Change, ...], new: Settings) -> dict[str, Any]:
    """The config with Serve's own option that lets the rolled engines start no spare replica."""
    first, *others = document["applications"]
    rolled = {each.model for each in planned if each.effect in ENGINES_START}
    own = {each["name"]: each for each in first.get("deployments") or []}
    for name in (name for model in new.models if model.id in rolled for name in engine_deployments(model)):
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
    now, new = told_keys(running, "the running config"), told_keys(asked, source)
    if now["name"] != new["name"]:
        raise SettingsError(
            f"{source}: applications[].name = {new['name']!r}: {now['name']!r} runs there, which "
            f"`promptly apply` changes in place; expected {now['name']!r}"
        )
    return differing_keys(now, new)


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
            if str(now.get("port")) == os.environ.get(GIVEN_PORT):
                asked["port"] = now["port"]  # the start was given it; its file says another one
        if asked is not None and asked != now:
            yield f"{key}: {Effect.KEPT.value}"


def _file() -> Path:
    return default_cache_dir() / "applied.json"


def _keep(history: History) -> None:
    """Raises: ApiError: there is nowhere to keep it, so there would be no way back."""
    try:
        write_secret(_file(), json.dumps(asdict(history), default=str))
    except OSError as error:
        raise ApiError(f"the running config cannot be kept for --back: {said_of(error)}") from error


def _kept() -> History:
    """An empty one: nothing was applied from this machine, or the file is not what was kept."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
        if "applications" in found:  # as 0.1 wrote it: the config before the last one
            found = {"in_force": [found]}
        history = History(tuple(found["in_force"]), found.get("asked"))
        for document in (*history.in_force, history.asked):
            if document is not None:
                (application,) = document["applications"]
                told_keys(application, "a config that was kept")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SettingsError):
        return History()
    return history


def _before(history: History, *, has_run: bool) -> Document:
    """Raises: ConfigError: there is none."""
    found = history.back(has_run=has_run)
    if found is None:
        raise ConfigError(f"promptly apply --back: {_file()} has no config to go back to")
    return found


def _wait(api: ServeApi, timeout_s: float, began: float) -> None:
    """Print each part's progress once. Raises: ApiError: it failed, or was not done in time."""
    said = ""
    while time.monotonic() - began < timeout_s:
        time.sleep(POLL_S)
        applications = parse_applications({"applications": _of_files(api.details())})
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
