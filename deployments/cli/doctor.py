"""Say what this machine lacks for a start, each with the command that mends it.

    promptly doctor
    promptly doctor config.yaml
    promptly doctor --json

With a config file it looks at that file's port, models, and whether its engines run on GPUs. It starts and
changes nothing. Exit status: 0 if a start can work (warnings included), 1 if something is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from deployments.cli.machine_facts import read_facts
from deployments.launcher.config import ConfigError, ServeConfig, read_config
from deployments.launcher.ports import LOOPBACK, port_number
from serve_app.errors import SettingsError
from serve_app.machine import Finding, Kind, Verdict, Wants
from serve_app.machine.checks import examine
from serve_app.settings import Settings, load_file

USUAL_PORT = 8000
MARKS = {Verdict.OK: "ok     ", Verdict.WARNING: "warning", Verdict.MISSING: "MISSING"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly doctor``."""
    parser.add_argument("config", type=Path, nargs="?", help="Serve config file")
    parser.add_argument("--port", type=port_number, help="HTTP port; overrides the config's")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    parser.add_argument("--offline", action="store_true", help="never ask the hub")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config, applications = None, None
    try:
        if options.config is not None:
            applications = load_file(options.config)
            config = read_config(options.config, options.port)
    except (ConfigError, SettingsError) as error:
        print(error, file=sys.stderr)
        return 1
    findings = examined(config, applications, options)
    if options.json:
        print(json.dumps({"ok": sound(findings), "findings": [asdict(each) for each in findings]}, indent=2))
    else:
        print("\n".join(lines(findings)))
    return 0 if sound(findings) else 1


def examined(
    config: ServeConfig | None, applications: Sequence[Settings] | None, options: argparse.Namespace
) -> list[Finding]:
    host = LOOPBACK if config is None else config.host
    port = options.port or (USUAL_PORT if config is None else config.port)
    facts = read_facts(config, host, port, os.environ, offline=options.offline)
    kinds = frozenset({facts.kind}) if applications is None else engine_kinds(applications)
    return list(examine(facts, Wants(kinds, port)))


def engine_kinds(applications: Sequence[Settings]) -> frozenset[Kind]:
    """On what the engines of a config run; empty if all its models are at other servers."""
    engines = (model.engine for settings in applications for model in settings.models)
    return frozenset(engine.accelerator for engine in engines if engine is not None)


def sound(findings: Sequence[Finding]) -> bool:
    return all(each.verdict is not Verdict.MISSING for each in findings)


def lines(findings: Sequence[Finding]) -> list[str]:
    """One line for each finding; a second one says how to mend it."""
    widest = max(len(each.check) for each in findings)
    shown = []
    for each in findings:
        shown.append(f"{MARKS[each.verdict]}  {each.check:<{widest}}  {each.found}")
        if each.mend:
            shown.append(f"{'':<{len(MARKS[each.verdict]) + widest + 4}}→ {each.mend}")
    return shown
