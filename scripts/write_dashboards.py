"""Write the dashboards for Grafana, whose panels ask for the metrics by the names that the code has.

python scripts/write_dashboards.py [--config FILE] [--output FOLDER]

Without options: with the default settings, to config/observability/dashboards/.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dashboards.capacity import capacity
from dashboards.contract import Dashboard, as_json
from dashboards.overview import overview

from serve_app.errors import SettingsError
from serve_app.settings.alerts import AlertSettings
from serve_app.settings.load import load_file

TARGET = Path(__file__).parents[1] / "config" / "observability" / "dashboards"


def dashboards(settings: AlertSettings) -> dict[str, Dashboard]:
    """By file name."""
    objective = settings.ttft_p95_ms
    return {
        "promptly_overview.json": overview(),
        "promptly_capacity.json": capacity(None if objective is None else objective / 1000),
    }


def text_of(dashboard: Dashboard) -> str:
    return json.dumps(as_json(dashboard), indent=2) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the dashboards for Grafana.")
    parser.add_argument("--config", type=Path, help="Serve config file: its `alerts` have the objective")
    parser.add_argument("--output", type=Path, default=TARGET)
    options = parser.parse_args(arguments)
    settings = AlertSettings()
    if options.config is not None:
        try:
            settings = load_file(options.config)[0].alerts
        except SettingsError as error:
            print(error, file=sys.stderr)
            return 1
    options.output.mkdir(parents=True, exist_ok=True)
    for name, dashboard in dashboards(settings).items():
        (options.output / name).write_text(text_of(dashboard))
    return 0


if __name__ == "__main__":
    sys.exit(main())
