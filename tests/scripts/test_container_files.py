"""The files that make images and start them. The manifest for Kubernetes has tests of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.manifests.groups import drain_s
from serve_app.manifests.pods import CACHE, HOME, RUN, USER
from serve_app.settings import ModelSettings, load_file

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
def test_an_image_is_built_in_the_format_that_has_a_health_check(image: str) -> None:
    """`buildah` and `podman` make OCI images unless told otherwise, and these have none."""
    for file in (FOLDER / f"{image}.Containerfile", ROOT / "docs" / "images.md"):
        commands = re.findall(r"^[$#] *((?:buildah|podman) .*)$", file.read_text("utf-8"), flags=re.MULTILINE)
        mine = [each for each in commands if f"config/containers/{image}.Containerfile" in each]
        assert mine, file.name
        assert all(each.startswith("buildah build --format docker ") for each in mine), file.name


def test_the_gateways_bytecode_is_kept_on_a_volume() -> None:
    """The image has none, and its packages are where nothing can be written. No later container runs it."""
    variables = dict(pair.split("=", 1) for pair in dict(instructions("gateway"))["ENV"].split())
    assert variables["PYTHONPYCACHEPREFIX"].startswith("/tmp/")
    assert "PYTHONDONTWRITEBYTECODE" not in variables


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
    around = yaml.safe_load((FOLDER / included).read_text())
    own = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert not own["services"].keys() & around["services"].keys(), "Compose refuses a name twice"
    assert not own["volumes"].keys() & around["volumes"].keys()


def test_compose_asks_what_the_image_asks() -> None:
    """Every image has Python; `wget` is only in the gateways'."""
    options, _, command = dict(instructions("engine"))["HEALTHCHECK"].partition("CMD ")
    check = promptly()["healthcheck"]
    assert check["test"] == ["CMD", *yaml.safe_load(command)]
    own = dict(each.removeprefix("--").split("=") for each in options.split())
    assert {name.replace("-", "_"): value for name, value in own.items()} == {
        name: value for name, value in check.items() if name != "test"
    }


def test_compose_gives_the_container_no_rights_of_the_machine() -> None:
    service = promptly()
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode"}
    assert not any("docker.sock" in volume for volume in service["volumes"])


def test_compose_publishes_no_port_because_the_config_says_who_may_reach_it() -> None:
    service = promptly()
    assert service["network_mode"] == "host"
    assert "ports" not in service


def test_compose_reads_the_config_that_the_image_starts() -> None:
    (config,) = (volume for volume in promptly()["volumes"] if volume.startswith("${CONFIG"))
    target, mode = config.rsplit(":", 2)[-2:]
    assert mode == "ro"
    assert yaml.safe_load(dict(instructions("engine"))["CMD"])[-1] == target


def test_every_named_volume_of_compose_is_declared() -> None:
    declared = yaml.safe_load((FOLDER / "compose.yaml").read_text())["volumes"].keys()
    used = {volume.partition(":")[0] for volume in promptly()["volumes"] if not volume.startswith(("$", "."))}
    assert used == declared


def test_compose_lets_a_stop_last_longer_than_a_drain() -> None:
    engine = {"accelerator": "cpu"}
    model = ModelSettings.model_validate({"id": "chat", "source": "org/chat", "engine": engine})
    (stop_s,) = re.findall(r"(\d+)s", promptly()["stop_grace_period"])
    assert int(stop_s) > drain_s(model)


def test_compose_needs_a_gpu_only_with_the_file_for_gpus() -> None:
    assert "nvidia" not in (FOLDER / "compose.yaml").read_text()
    assert "deploy" not in promptly()
    more = yaml.safe_load((FOLDER / "compose.gpu.yaml").read_text())
    assert more.keys() == {"services"}
    assert more["services"].keys() == {"promptly"}
    (device,) = more["services"]["promptly"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", "all", ["gpu"])


def test_the_documented_commands_of_compose_name_files_that_are_there() -> None:
    """Without GPUs a config whose models have no engine here runs in the image without CUDA."""
    text = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (.* docker compose .*)$", text, flags=re.MULTILINE)
    named = [re.findall(r" -f (\S+)", command) for command in commands]
    assert all((ROOT / file).is_file() for files in named for file in files)
    assert [len(files) for files in named] == [2, 1]
    (settings,) = load_file(ROOT / "config" / "upstreams.yaml")
    assert [model for model in settings.models if model.engine is not None] == []
    assert "IMAGE=promptly-gateway:" in commands[1]


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="docker-compose is not installed (Debian: apt-get install --no-install-recommends docker-compose)",
)
@pytest.mark.parametrize("gpus", [False, True], ids=["cpu", "gpu"])
def test_docker_compose_accepts_the_files(tmp_path: Path, gpus: bool) -> None:
    """By its schema, which needs no container engine. Without `include`, which Debian's docker-compose is too
    old for: the included file has a test of its own."""
    own = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    del own["include"]
    file = tmp_path / "compose.yaml"
    file.write_text(yaml.safe_dump(own))
    more = ["-f", str(FOLDER / "compose.gpu.yaml")] if gpus else []
    done = subprocess.run(
        ["docker-compose", "-f", str(file), *more, "config"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CONFIG": str(ROOT / "config" / "gpu-8b.yaml")},
    )
    assert done.returncode == 0, done.stderr
    service = yaml.safe_load(done.stdout)["services"]["promptly"]
    assert ("deploy" in service) == gpus
