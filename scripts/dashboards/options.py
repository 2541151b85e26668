"""What the commands that write files for Prometheus and Grafana are asked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from serve_app.errors import SettingsError
from serve_app.settings.alerts import AlertSettings
from serve_app.settings.load import load_file


def asked(arguments: list[str] | None, about: str, target: Path) -> tuple[AlertSettings, Path] | None:
    """The settings of alerts, and where to write; ``None``: the config file is wrong, which has been said."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--config", type=Path, help="Serve config file with settings of `alerts`")
    parser.add_argument("--output", type=Path, default=target)
    options = parser.parse_args(arguments)
    try:
        settings = AlertSettings() if options.config is None else load_file(options.config)[0].alerts
    except SettingsError as error:
        print(error, file=sys.stderr)
        return None
    return settings, options.output
