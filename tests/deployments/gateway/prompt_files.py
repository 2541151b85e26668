"""Folders of prompts for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

REPLY = {
    "reply/1.md": "---\nvariables: {name: null, tone: friendly}\n---\nAnswer {{name}} in a {{tone}} way.",
    "reply/2.md": "---\nvariables: [name]\n---\nAnswer {{name}} at length.",
    "labels.yaml": 'labels: {reply: {production: "1"}}',
}


def prompt_folder(folder: Path, files: dict[str, str] | None = None, **settings: Any) -> dict[str, Any]:
    """Writes the files; the settings ``prompts`` for them."""
    for name, text in (REPLY if files is None else files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"prompts": {"folder": str(folder), "check_period_s": 0.02, **settings}}
