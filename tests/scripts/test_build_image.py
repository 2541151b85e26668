"""The gateways' image: how it is built and judged, and, where one asks for it, the build itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_image
import pytest
from benchmarks.engines import scripted_engine
from build_image import COMMANDS, MOST_BYTES, NAME, build_arguments, faults, pip_settings, run_arguments

ROOT = Path(__file__).parents[2]
GOOD: dict[str, Any] = {
    "User": "1000",
    "Healthcheck": {"Test": ["CMD", "wget", "http://127.0.0.1:8000/health"]},
    "Env": ["HOME=/home/promptly"],
    "Entrypoint": ["tini", "--"],
    "Volumes": {"/tmp": {}, "/home/promptly": {}},
}
BUILD_TIMEOUT_S = 2400.0
PROJECT = "promptly-test"
CONTAINER = f"{PROJECT}_promptly_1"
READY_S = 300.0
NO_PODMAN = [program for program in ("podman", "podman-compose") if shutil.which(program) is None]


def test_the_build_is_the_documented_command_with_what_this_machine_needs() -> None:
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\$ buildah (build .*gateway\.Containerfile.*)$", page, re.MULTILINE)
    documented = line.split()
    built = build_arguments("debian:x", "https://index.example", {"/etc/pip.conf": "/scratch/pip.conf"})
    assert built[: len(documented) - 1] == documented[:-1]
    assert built[-1] == documented[-1]
    assert {"--build-arg=BASE=debian:x", "--build-arg=TORCH_INDEX=https://index.example"} < set(built)
    assert "--volume=/scratch/pip.conf:/etc/pip.conf:ro" in built


def test_an_index_of_pytorch_that_is_reached_is_not_replaced() -> None:
    assert not any("TORCH_INDEX" in word for word in build_arguments("debian:x", None, {}))


def test_the_build_takes_packages_from_where_pip_takes_them_here() -> None:
    known = {
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "https://index.example/simple file:///srv/pypi/simple",
        "UV_FIND_LINKS": "/srv/wheels https://wheels.example",
        "SSL_CERT_FILE": "/etc/ssl/own.crt",
    }
    text, mounts = pip_settings(known)
    assert "index-url = https://index.example/simple\n" in text
    assert "find-links = /srv/wheels https://wheels.example\n" in text
    assert "cert = /etc/pip-certificates.crt\n" in text
    assert mounts == {
        "/srv/pypi": "/srv/pypi",
        "/srv/wheels": "/srv/wheels",
        "/etc/pip-certificates.crt": "/etc/ssl/own.crt",
    }


def test_a_machine_that_set_nothing_gives_the_build_its_index_alone() -> None:
    text, mounts = pip_settings({"UV_DEFAULT_INDEX": "https://a.example", "UV_INDEX": "https://a.example"})
    assert mounts == {}
    assert "find-links" not in text
    assert "cert" not in text


def test_an_image_as_it_should_be_has_no_fault() -> None:
    assert list(faults(GOOD, ["torch", "numpy"], MOST_BYTES)) == []


@pytest.mark.parametrize("user", ["", "0", "root"])
def test_an_image_of_root_is_refused(user: str) -> None:
    (fault,) = faults({**GOOD, "User": user}, [], 1)
    assert f"it runs as {user or 'root'}, not as user 1000" in fault


def test_an_image_without_a_health_check_is_refused() -> None:
    """As buildah makes it in the other format."""
    (fault,) = faults({**GOOD, "Healthcheck": None}, [], 1)
    assert "no health check" in fault


def test_an_image_with_cuda_names_the_packages() -> None:
    (fault,) = faults(GOOD, ["nvidia_cublas-13.0.dist-info", "torch", "triton", "vllm"], 1)
    assert "nvidia_cublas-13.0.dist-info, triton, vllm" in fault


def test_an_image_that_is_too_large_is_refused_with_both_sizes() -> None:
    (fault,) = faults(GOOD, [], 1_590_000_000)
    assert fault == "it has 1.590 GB, and may have 1.500 GB"


def test_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    empty = build_image.bytes_below(tmp_path)
    (tmp_path / "file").write_bytes(b"x" * 12345)
    assert build_image.bytes_below(tmp_path) - empty == 12345


def test_a_program_runs_as_the_images_user_without_rights() -> None:
    words = run_arguments(Path("/root-of-it"), GOOD, ["promptly", "--version"])
    assert {"--reuid=1000", "--regid=1000", "--no-new-privs", "--bounding-set=-all"} < set(words)
    assert "/tmp /home/promptly" in words, "volumes in memory"
    assert words[-4:] == ["tini", "--", "promptly", "--version"]
    assert words[words.index("-i") + 1] == "HOME=/home/promptly"


def test_a_command_that_fails_is_named_with_the_end_of_what_it_wrote() -> None:
    with pytest.raises(build_image.ImageError, match=r"(?s)sh.*status 3.*no room"):
        build_image.checked(["sh", "-c", "echo no room >&2; exit 3"])
    with pytest.raises(build_image.ImageError, match="timed out"):
        build_image.checked(["sleep", "60"], timeout_s=0.01)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image, built and looked into."""
    if "PROMPTLY_TEST_IMAGES" not in os.environ:
        pytest.skip("takes twelve minutes and 10 GB of disk: set PROMPTLY_TEST_IMAGES=1, as root")
    if missing := [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: apt-get install)")
    folder, scratch = tmp_path_factory.mktemp("image"), tmp_path_factory.mktemp("scratch")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build_image.py"), "--output", str(folder / "image.tar")],
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert f"{NAME}: 1." in done.stdout
    assert done.stdout.count("\n$ ") == len(COMMANDS)
    assert str(scratch) not in Path("/proc/self/mounts").read_text(encoding="utf-8")
    assert list(scratch.iterdir()) == []
    yield folder / "image.tar"
    shutil.rmtree(folder)


def test_the_image_is_built_and_runs_and_leaves_nothing_behind(archive: Path) -> None:
    assert archive.stat().st_size > 100_000_000


@pytest.mark.skipif(bool(NO_PODMAN), reason=f"not installed: {', '.join(NO_PODMAN)} (apt-get and pip)")
def test_compose_starts_the_image_in_a_container_that_serves_and_ends(archive: Path, tmp_path: Path) -> None:
    """The documented command for a machine without GPUs, of the application alone: the images around it
    are of other makers. At port 8000, which Compose's health check asks."""
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (IMAGE=.* docker compose .*)$", page, re.MULTILINE)
    composed = command.replace("docker compose", f"podman-compose -p {PROJECT}")
    run(f"podman load --quiet --input {archive}")
    with scripted_engine("chat", tokens=8, itl_ms=1.0) as engine:
        config = build_image.NEEDS_NOTHING.format(port=8000).replace(
            "http://127.0.0.1:9/v1", f"{engine.url}/v1"
        )
        (tmp_path / "promptly.yaml").write_text(config)
        folder = tmp_path / "config"
        folder.symlink_to(ROOT / "config")
        try:
            run(f"cd {tmp_path} && {composed} promptly")
            wait_ready("http://127.0.0.1:8000/health")
            assert run(f"podman healthcheck run {CONTAINER}") == ""
            assert run(f"podman exec {CONTAINER} id -u") == "1000\n"
            assert "Read-only file system" in run(f"podman exec {CONTAINER} touch /opt/x 2>&1 || true")
            assert "CapEff:\t0000000000000000" in run(f"podman exec {CONTAINER} cat /proc/self/status")
            body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
            asked = urllib.request.Request(
                "http://127.0.0.1:8000/v1/chat/completions",
                json.dumps(body).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert answer.read().decode().rstrip().endswith("data: [DONE]")
            run(f"podman stop --time 150 {CONTAINER}")
            assert run(f"podman inspect --format '{{{{.State.ExitCode}}}}' {CONTAINER}") == "0\n"
        finally:
            run(f"podman rm --force --volumes {CONTAINER}; podman rmi --force {NAME}")


def run(script: str) -> str:
    """What it writes. CONTAINERS_CONF names podman's settings, where a machine needs other limits."""
    done = subprocess.run(
        ["bash", "-uc", script], capture_output=True, text=True, timeout=300, check=False, env=os.environ
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def wait_ready(url: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, run(f"podman logs {CONTAINER} 2>&1")
            time.sleep(1)
