"""The reference pages are what the code says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from document_reference import DOCS, PAGES

from deployments.cli.main import COMMANDS
from serve_app.api.routes import ROUTES
from serve_app.monitoring.metrics import METRICS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run `python scripts/document_reference.py`"


def test_every_command_route_and_metric_is_on_its_page() -> None:
    commands, routes, metrics = (page() for page in PAGES.values())
    assert all(f"## promptly {name}\n" in commands for name in COMMANDS)
    assert all(f"## {route.path}\n" in routes for route in ROUTES)
    assert all(f"| `{metric.exported}` |" in metrics for metric in METRICS)


def test_a_page_is_the_same_for_every_user(tmp_path: Path) -> None:
    """Defaults are in the user's folder, and a terminal has a width."""
    elsewhere = {"PROMPTLY_CACHE": str(tmp_path), "COLUMNS": "40", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "scripts/document_reference.py", "--check"],
        cwd=ROOT,
        env=os.environ | elsewhere | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
