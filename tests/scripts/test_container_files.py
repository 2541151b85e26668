"""The files that make images and start them. The manifest for Kubernetes has tests of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.manifests.pods import CACHE, HOME, RUN, USER

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "config" / "containers"
IMAGES = ("gateway", "engine")


def instructions(image: str) -> list[tuple[str, str]]:
    """Of the last stage, continued lines joined."""
    text = (FOLDER / f"{image}.Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    pairs = (line.strip().partition(" ") for line in lines[last:])
    return [(name, rest) for name, _, rest in pairs]


def promptly() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["promptly"]
    return service


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_the_user_of_the_manifest_and_is_watched(image: str) -> None:
    found = dict(instructions(image))
    assert found["USER"] == str(USER)
    assert "/health" in found["HEALTHCHECK"]
    assert "promptly" in found["CMD"]


@pytest.mark.parametrize("image", IMAGES)
def test_what_an_image_writes_lies_on_volumes(image: str) -> None:
    volumes = yaml.safe_load(dict(instructions(image))["VOLUME"])
    assert set(volumes) == {CACHE, HOME, RUN, "/tmp"}


@pytest.mark.parametrize("image", IMAGES)
def test_what_an_image_copies_is_in_the_checkout(image: str) -> None:
    text = (FOLDER / f"{image}.Containerfile").read_text(encoding="utf-8")
    for sources in re.findall(r"^COPY (?!--from)(.*) /build/$", text, flags=re.MULTILINE):
        for source in sources.split():
            assert source == "dist/*.whl" or (ROOT / source).is_file()


def test_the_script_of_the_image_is_a_shell_script() -> None:
    subprocess.run(["sh", "-n", str(FOLDER / "install.sh")], check=True, timeout=10)


def test_the_script_strips_libraries_that_the_tested_packages_have() -> None:
    """`strip` fails without its file, and with it the image."""
    script = (FOLDER / "install.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^strip --strip-unneeded (.*)$", script, flags=re.MULTILINE)
    patterns = re.findall(r'"\$packages"?/([^" ]+)', line)
    assert len(patterns) == 4
    ray = importlib.util.find_spec("ray")
    assert ray is not None
    packages = Path(str(ray.origin)).parents[1]
    assert [each for each in patterns if not list(packages.glob(each))] == []


def test_compose_mounts_every_folder_that_is_written_and_nothing_else() -> None:
    service = promptly()
    assert service["read_only"] is True
    assert service["user"] == str(USER)
    targets = {volume.rsplit(":", 1)[-1] for volume in service["volumes"] if not volume.endswith(":ro")}
    memory = {mount.partition(":")[0] for mount in service["tmpfs"]}
    assert targets | memory == {CACHE, HOME, RUN, "/tmp"}


def test_programs_run_from_folders_in_memory() -> None:
    """The front door writes a wrapper of HAProxy there; Docker's tmpfs allows no programs by default."""
    assert all("exec" in mount.partition(":")[2].split(",") for mount in promptly()["tmpfs"])


def test_compose_starts_the_services_around_it() -> None:
    (included,) = yaml.safe_load((FOLDER / "compose.yaml").read_text())["include"]
    assert (FOLDER / included).is_file()
