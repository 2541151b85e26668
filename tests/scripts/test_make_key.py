"""Keys made at the same time are all kept, and a keys file is never seen half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.request.auth import KeySources, decode_records, load_keys
from serve_app.settings import KeySettings

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(ROOT / "scripts" / "make_key.py")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def sources(file: Path) -> KeySources:
    return load_keys(KeySettings(keys_file=str(file)), {})


def test_twelve_at_once_make_twelve_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    makers = [
        subprocess.Popen(
            [*COMMAND, f"team-{n}", "--file", str(file)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
        )
        for n in range(12)
    ]
    keys = [maker.communicate(timeout=60)[0].strip() for maker in makers]
    ring = sources(file).ring()
    assert {ring.identify(f"Bearer {key}").tenant for key in keys} == {f"team-{n}" for n in range(12)}
    assert file.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"keys.json", ".keys.json.lock"}


def test_a_key_is_removed_by_its_id(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    kept, gone = (run(tenant, "--file", str(file)).stdout.strip() for tenant in ("kept", "gone"))
    assert run("--remove", gone.split("-")[1], "--file", str(file)).returncode == 0
    (record,) = decode_records(file.read_bytes())
    assert record.id == kept.split("-")[1]
    again = run("--remove", gone.split("-")[1], "--file", str(file))
    assert again.returncode == 1
    assert "no key has the id" in again.stderr


@pytest.mark.parametrize("tenant", ["a b", "../up", ""])
def test_a_name_that_is_no_tenant_s_makes_no_key(tenant: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    refused = run(tenant, "--file", str(file))
    assert refused.returncode == 1
    assert "no tenant's name" in refused.stderr
    assert not file.exists()


def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(b'[{"id": "half')
    refused = run("acme", "--file", str(file))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert file.read_bytes() == b'[{"id": "half'


def test_a_file_that_was_not_there_is_said_to_be_new(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.json")
    assert "is a new keys file" in run("a", "--file", file).stderr
    assert run("b", "--file", file).stderr == ""
