"""A start that knows secrets: the processes that need them have them, and no other."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.engines import scripted_process
from support.server import Server, ServerSlot, launched

from deployments.launcher.processes import descendants

VENDOR, CLIENTS = "E2E_VENDOR_KEY", "E2E_CLIENT_KEYS"
VENDOR_KEY, CLIENT_KEY = "vendor-key-of-a-test-8d1f", "client-key-of-a-test-52c0"
VARIABLES = {VENDOR: VENDOR_KEY, CLIENTS: f"team={CLIENT_KEY}"}


@pytest.fixture
def keyed(slot: ServerSlot, tmp_path: Path) -> Iterator[Server]:
    """Its model is a vendor's, behind a key."""
    with scripted_process("far") as vendor:
        upstream = {"name": "vendor", "url": f"{vendor.url}/v1", "key_env": VENDOR}
        changes = {
            "models": [{"id": "far", "upstreams": [upstream]}],
            "auth": {"keys_env": CLIENTS},
            "embedder": None,
            "cache": None,
        }
        yield slot.start(launched(tmp_path, tmp_path / "store", variables=VARIABLES, **changes))
        slot.stop()


def test_keys_are_in_no_environment_no_command_line_and_no_log(keyed: Server) -> None:
    body = {"model": "far", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{keyed.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"authorization": f"Bearer {CLIENT_KEY}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200  # both keys are where they are needed

    supervisor = keyed.process.pid
    below = descendants(supervisor)
    assert len(below) > 8
    for key in (VENDOR_KEY, CLIENT_KEY):
        found = holders(key, [supervisor, *below])
        found = holders(key, found)  # a child that had not begun its own program has done so by now
        assert found == [supervisor], "only the process that was given them"
        logs = {path: text for path in written_by(keyed) if (text := written(path)) is not None}
        assert any(path.name.startswith("replica_") for path in logs)
        assert [path for path, text in logs.items() if key.encode() in text] == []


def holders(secret: str, pids: list[int]) -> list[int]:
    """The processes that have it in their environment or their command line."""
    return [pid for pid in pids if secret in shown(pid, "environ") + shown(pid, "cmdline")]


def shown(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""


def written(log: Path) -> bytes | None:
    try:
        return log.read_bytes()
    except FileNotFoundError:  # it was rotated
        return None


def written_by(server: Server) -> Iterator[Path]:
    """The logs of the start: its own, Ray's and Serve's."""
    folder = Path(json.loads((server.log.parent / "ready.json").read_text())["folder"])
    yield server.log
    for path in folder.rglob("*"):
        if path.suffix in (".log", ".out", ".err") and path.is_file():
            yield path
