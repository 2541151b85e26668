"""Dashboards as values, and as the JSON that Grafana loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.monitoring.metrics import REQUESTS

WIDTH = 24
"""Columns of Grafana's grid."""

PANEL_WIDTH, PANEL_HEIGHT = 8, 8

SCHEMA_VERSION = 39
"""The schema of Grafana 10 and 11; newer ones migrate it as they load it."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""The variable has the same name as on Ray's own dashboards, so that Ray's links set it."""


@dataclass(frozen=True, slots=True)
class Query:
    """``legend`` may name labels: ``{{model}}``."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """``unit`` is Grafana's name for it. ``most``: the end of the axis."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]


def as_json(dashboard: Dashboard) -> dict[str, Any]:
    """What Grafana loads."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["promptly"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": _laid_out(dashboard.rows),
    }


def _variables() -> list[dict[str, Any]]:
    models = f"label_values({REQUESTS.exported}, model)"
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "refresh": 1,
            "hide": 0,
            "includeAll": False,
            "multi": False,
        },
        {
            "name": "model",
            "label": "Model",
            "type": "query",
            "datasource": SOURCE,
            "definition": models,
            "query": {"query": models, "refId": "models"},
            "refresh": 2,
            "sort": 1,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        },
        {
            "name": "window",
            "label": "Window",
            "type": "custom",
            "query": "1m,5m,30m",
            "current": {"selected": True, "text": "5m", "value": "5m"},
            "options": [
                {"selected": each == "5m", "text": each, "value": each} for each in ("1m", "5m", "30m")
            ],
            "includeAll": False,
            "multi": False,
        },
    ]


def _laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        top += 1
        in_line = WIDTH // PANEL_WIDTH
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, in_line)
            x, y = column * PANEL_WIDTH, top + line * PANEL_HEIGHT
            found.append(_panel(panel, len(found) + 1, x, y))
        top += -(-len(row.panels) // in_line) * PANEL_HEIGHT
    return found


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    bounds = {"min": 0} if panel.most is None else {"min": 0, "max": panel.most}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"h": PANEL_HEIGHT, "w": PANEL_WIDTH, "x": x, "y": y},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **bounds, "custom": {"lineWidth": 1, "fillOpacity": 5}},
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": each.expr}
            | {"legendFormat": each.legend, "range": True}
            for index, each in enumerate(panel.queries)
        ],
    }
