"""Prompts that are files: what there is, what changed, and which version a label stands for.

    promptly prompts list
    promptly prompts diff support-reply production 3
    promptly prompts promote support-reply 3
    promptly prompts rollback support-reply

It works on the files alone: in `--folder`, or in the folder that the config file `--config` names; gateways
notice the change. `labels.yaml` is replaced at once or not at all. Exit status 1: it was refused, or a file
cannot be used; the message says why.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deployments.cli.dates import utc_text
from deployments.platform.prompt_folder import PromptFolder
from serve_app.errors import SettingsError
from serve_app.prompts import Library, PromptVersion
from serve_app.prompts.labels import PRODUCTION
from serve_app.prompts.library import library_of
from serve_app.settings.load import load_file
from serve_app.settings.prompts import PromptSettings

DEFAULT_FOLDER = "prompts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly prompts``."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = commands.add_parser("list", help="the prompts with their versions and labels")
    found.add_argument("--json", action="store_true")
    diff = commands.add_parser("diff", help="what one version says and another does not")
    promote = commands.add_parser("promote", help="let a label stand for a version")
    back = commands.add_parser("rollback", help="let a label stand for the version before")
    for one in (diff, promote, back):
        one.add_argument("prompt")
    diff.add_argument("old", help="a version or a label")
    diff.add_argument("new", help="a version or a label")
    promote.add_argument("version", help="a version or a label")
    for one in (promote, back):
        one.add_argument("--label", default=PRODUCTION, help=f"default: {PRODUCTION}")
    for one in (found, diff, promote, back):
        one.add_argument("--folder", type=Path, help=f"default: {DEFAULT_FOLDER}")
        one.add_argument("--config", type=Path, help="Serve config file that names the folder")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        folder = PromptFolder(_settings(options))
        if options.action in ("promote", "rollback"):
            lines, problems = [_relabelled(folder, options)], []
        else:
            library = library_of(folder.read())
            lines = list(_list(library, options) if options.action == "list" else _diff(library, options))
            problems = list(library.problems)
    except (OSError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 1
    for line in lines:
        print(line)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _settings(options: argparse.Namespace) -> PromptSettings:
    """Raises: SettingsError: the config file names no folder."""
    if options.config is None:
        return PromptSettings(folder=str(options.folder or DEFAULT_FOLDER))
    found = [each.prompts for each in load_file(options.config) if each.prompts is not None]
    if not found:
        raise SettingsError(f"{options.config}: it has no section `prompts`")
    return found[0] if options.folder is None else found[0].model_copy(update={"folder": str(options.folder)})


def _list(library: Library, options: argparse.Namespace) -> Iterator[str]:
    described = [_described(library, name) for name in sorted(library.prompts)]
    if options.json:
        yield json.dumps({"prompts": described, "problems": library.problems}, indent=2)
        return
    for each in described:
        labels = ", ".join(f"{label}={version}" for label, version in each["labels"].items()) or "no labels"
        tenants = "" if each["tenants"] is None else f"  tenants: {', '.join(each['tenants'])}"
        yield f"{each['id']}  {labels}{tenants}"
        for version in each["versions"]:
            variables = ", ".join(version["variables"]) or "none"
            yield f"  {version['version']}  variables: {variables}  messages: {version['messages']}"


def _described(library: Library, name: str) -> dict[str, Any]:
    prompt = library.prompts[name]
    versions = [
        {"version": each.name, "variables": dict(each.variables), "messages": len(each.messages)}
        for each in prompt.versions.values()
    ]
    tenants = None if prompt.tenants is None else sorted(prompt.tenants)
    return {"id": name, "labels": library.labels.of(name), "tenants": tenants, "versions": versions}


def _diff(library: Library, options: argparse.Namespace) -> Iterator[str]:
    """Raises: SettingsError: there is no such version."""
    old = library.version_of(options.prompt, options.old)
    new = library.version_of(options.prompt, options.new)
    was, now = (f"{options.prompt}@{version.name}" for version in (old, new))
    return difflib.unified_diff(_lines(old), _lines(new), was, now, lineterm="")


def _lines(version: PromptVersion) -> list[str]:
    lines = []
    for name, default in version.variables.items():
        lines.append(f"variable {name}" if default is None else f"variable {name} = {default!r}")
    for message in version.messages:
        lines += [f"{message.role}:", *message.text.splitlines()]
    return lines


def _relabelled(folder: PromptFolder, options: argparse.Namespace) -> str:
    """What has changed. Raises: OSError, SettingsError."""
    prompt, label = options.prompt, options.label
    with folder.locked():
        library, labels = library_of(folder.read()), folder.labels()
        before = labels.versions.get((prompt, label), "nothing")
        if options.action == "promote":
            version = library.version_of(prompt, options.version).name
            labels = labels.promoted(prompt, label, version, utc_text(time.time()))
        else:
            labels = labels.rolled_back(prompt, label)
            version = library.version_of(prompt, labels.versions[prompt, label]).name
        folder.write_labels(labels)
    return f"{prompt}: {label} is {version}, was {before}"
