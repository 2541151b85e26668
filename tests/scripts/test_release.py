"""The files of a release: what must be so before, what they hold, and that the signature can be checked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import release
from release import ROOT, SUMS, ReleaseError

from serve_app.version import VERSION

CHANGES = """# Changelog

## Unreleased

## 1.2.0 - 2026-01-02

- It is faster.

## 1.1.0 - 2025-01-02

- x
"""


def test_a_release_needs_a_version_notes_a_new_tag_and_a_clean_work_tree() -> None:
    assert list(release.problems("1.2.0", CHANGES, ["v1.1.0"], [])) == []
    left = CHANGES.replace("## Unreleased\n", "## Unreleased\n\n- Not yet.\n")
    found = "\n".join(release.problems("1.3", left, ["v1.3"], ["README.md"]))
    for words in (
        "'1.3' is no version",
        "no section `## 1.3",
        "left under Unreleased",
        "tag v1.3",
        "README.md",
    ):
        assert words in found
    assert list(release.problems("1.2.0", CHANGES.replace(" - 2026-01-02", ""), [], [])) != []


def test_the_notes_are_those_of_the_version() -> None:
    assert release.notes_of(CHANGES, "1.2.0") == "- It is faster."
    assert release.notes_of(CHANGES, "1.2") is None


def test_the_version_has_notes_that_say_how_to_upgrade() -> None:
    """A version is raised in the change that gives it a section with a date."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert release.UNRELEASED in release.sections(changelog), "where new lines go"
    notes = release.notes_of(changelog, VERSION)
    assert notes is not None
    assert "### Upgrading" in notes


@pytest.fixture
def gpg_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A key in a ring of its own. The folder's name is short: it holds sockets."""
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    with tempfile.TemporaryDirectory(prefix="gpg-") as ring:
        monkeypatch.setenv("GNUPGHOME", ring)
        name = "release@promptly.example"
        made = ["--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never"]
        subprocess.run(["gpg", "--batch", "--quiet", *made], check=True, capture_output=True, timeout=120)
        yield name
        subprocess.run(["gpgconf", "--kill", "all"], check=False, capture_output=True, timeout=60)


def test_a_release_has_sums_of_all_its_files_and_a_signature(gpg_key: str, tmp_path: Path) -> None:
    files = release.make(tmp_path, f"gpg:{gpg_key}")
    names = {file.name for file in files}
    assert names >= {
        f"promptly_serve-{VERSION}.tar.gz",
        f"promptly_serve-{VERSION}-py3-none-any.whl",
        f"promptly_serve-{VERSION}.cpu.cdx.json",
        f"promptly_serve-{VERSION}.gpu.cdx.json",
        SUMS,
        f"{SUMS}.asc",
    }
    checked = ["sha256sum", "--check", "--strict", SUMS]
    assert subprocess.run(checked, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    signature, sums = tmp_path / f"{SUMS}.asc", tmp_path / SUMS
    assert verifies(signature, sums)
    bill = json.loads((tmp_path / f"promptly_serve-{VERSION}.cpu.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == VERSION
    assert any(each["name"].endswith(".whl") for each in bill["metadata"]["properties"])
    sums.write_text(sums.read_text().replace("0", "1", 1))
    assert not verifies(signature, sums)


def verifies(signature: Path, sums: Path) -> bool:
    command = ["gpg", "--batch", "--verify", str(signature), str(sums)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("signer", ["pgp:key", "gpg:", "gpg"])
def test_a_signer_that_is_none_is_refused_before_anything_is_built(signer: str, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="expected gpg:KEY"):
        release.make(tmp_path, signer)
    assert list(tmp_path.iterdir()) == []


def test_a_signer_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseError, match="minisign is not installed"):
        release.make(tmp_path, "minisign:key")


def test_a_release_without_a_signer_makes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "release.py"), "--output", str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "--sign gpg:KEY" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_dry_run_builds_everything_elsewhere_and_says_what_is_missing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "release.py"),
        "--dry-run",
        "--output",
        str(tmp_path / "x"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    missing = list(release.problems(VERSION, changelog, (), ()))
    assert [each for each in missing if each not in done.stderr] == []
    assert all(name in done.stdout for name in (SUMS, release.NOTES))
    assert not (tmp_path / "x").exists()
