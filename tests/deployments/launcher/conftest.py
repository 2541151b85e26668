"""A config file and a folder of a start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deployments.launcher.folder import StartFolder
from deployments.launcher.ports import Claims, Ports, pick_ports

UNIX_SOCKET_PATH_BYTES = 107


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    document = {
        "http_options": {"host": "127.0.0.1", "port": 8123},
        "applications": [
            {
                "name": "promptly",
                "route_prefix": "/",
                "import_path": "serve_app.app:build",
                "args": {
                    "models": [
                        {
                            "id": "small",
                            "source": "owner/small",
                            "engine": {"speculation": {"method": "draft_model", "model": "owner/draft"}},
                        }
                    ],
                    "embedder": {"id": "embed", "source": "owner/embed"},
                    "cache": {},
                },
            }
        ],
    }
    path = tmp_path / "app.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> StartFolder:
    folder = StartFolder(tmp_path)
    folder.admin_token.write_text("the-admin-token-of-the-tests")
    return folder


@pytest.fixture
def ports() -> Iterator[Ports]:
    with Claims() as claims:
        yield pick_ports(claims)
