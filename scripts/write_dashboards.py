"""Write the dashboards for Grafana, whose panels ask for the metrics by the names that the code has.

python scripts/write_dashboards.py [--config FILE] [--output FOLDER]

Without options: with the default settings, to config/observability/dashboards/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dashboards.capacity import capacity
from dashboards.contract import Dashboard, as_json
from dashboards.options import asked
from dashboards.overview import overview

from serve_app.settings.alerts import AlertSettings

TARGET = Path(__file__).parents[1] / "config" / "observability" / "dashboards"


def dashboards(settings: AlertSettings) -> dict[str, Dashboard]:
    """Dashboards by file name."""
    objective = settings.ttft_p95_ms
    return {
        "promptly_overview.json": overview(),
        "promptly_capacity.json": capacity(None if objective is None else objective / 1000),
    }


def text_of(dashboard: Dashboard) -> str:
    return json.dumps(as_json(dashboard), indent=2) + "\n"


def main(arguments: list[str] | None = None) -> int:
    found = asked(arguments, "Write the dashboards for Grafana.", TARGET)
    if found is None:
        return 1
    settings, folder = found
    folder.mkdir(parents=True, exist_ok=True)
    for name, dashboard in dashboards(settings).items():
        (folder / name).write_text(text_of(dashboard))
    return 0


if __name__ == "__main__":
    sys.exit(main())
