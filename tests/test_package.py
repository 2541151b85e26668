"""The wheel holds all that the application reads, and works from another folder than the checkout.

The wheel is built from the unpacked source archive, and installed with pip into a virtual environment of its
own, without its dependencies: those come from the environment of the tests, by a .pth file. Installing them
too would fetch 3 GB. What starts a whole application from a wheel was tried by hand (docs/installing.md).
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import package
import pytest
import yaml

from deployments.platform.shipped import SHARED, shipped_folder
from serve_app.version import VERSION

READ_ALL = """
import sys
from pathlib import Path

import serve_app.app
from deployments.gateway.endpoints.console import FOLDER
from deployments.platform.shipped import shipped_folder
from serve_app.settings import load_file

assert callable(serve_app.app.build)
assert (FOLDER / "index.html").is_file()
for file in sorted(shipped_folder().glob("*.yaml")):
    load_file(file)
    print(file)
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in ("serve_app", "deployments") and module.__file__ is not None:
        assert Path(module.__file__).is_relative_to(sys.prefix), name
"""
"""Raises where a module or a data file is missing, or comes from elsewhere than the wheel."""


def tracked(*folders: str) -> set[str]:
    return {
        name for name in package.tracked_files() if name.startswith(tuple(f"{each}/" for each in folders))
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive, wheel = package.build(tmp_path_factory.mktemp("dist"))
    assert archive.name == f"promptly_serve-{VERSION}.tar.gz"
    assert wheel.name == f"promptly_serve-{VERSION}-py3-none-any.whl"
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environment."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    into = ["--python", str(folder / "bin" / "python"), "install", "--quiet"]
    alone = ["--no-deps", "--no-compile", "--no-index", str(wheel)]
    subprocess.run([*pip, *into, *alone], check=True, capture_output=True, env=outside())
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return folder


def outside() -> dict[str, str]:
    """The environment of a shell that knows nothing of the checkout."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def run(installed: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the virtual environment in ``folder``; no hub is asked."""
    return subprocess.run(
        [str(installed / "bin" / command[0]), *command[1:]],
        cwd=folder,
        env=outside() | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    parts = {name: name.split("/", maxsplit=1)[0] for name in names}
    assert {name for name in names if parts[name] in {"serve_app", "deployments"}} == tracked(
        "serve_app", "deployments"
    )
    shared = f"promptly_serve-{VERSION}.data/data/{SHARED}"
    configs = {f"config/{name.removeprefix(shared)}" for name in names if name.startswith(shared)}
    assert configs == tracked("config")
    assert {parts[name].partition("-")[0] for name in names} == {"serve_app", "deployments", "promptly_serve"}


def test_the_installed_command_says_its_version_and_its_subcommands(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "promptly", "--version").stdout == f"promptly {VERSION}\n"
    shown = run(installed, tmp_path, "promptly", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert all(name in shown.stdout for name in ("serve", "plan", "check"))


def test_the_installed_application_finds_all_its_files(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "python", "-I", "-W", "ignore", "-c", READ_ALL)
    assert done.returncode == 0, done.stderr
    read = {Path(line).name for line in done.stdout.splitlines() if line.endswith(".yaml")}
    assert read == {file.name for file in shipped_folder().glob("*.yaml")}

    config = next(line for line in done.stdout.splitlines() if line.endswith("gpu-8b.yaml"))
    planned = run(installed, tmp_path, "promptly", "plan", config, "--device", "H100", "--offline")
    assert planned.returncode == 0, planned.stderr
    assert "qwen3-8b" in planned.stdout


def test_the_installed_commands_write_a_config_and_look_at_it(installed: Path, tmp_path: Path) -> None:
    """The way of a new machine: `init`, `doctor`, `plan`, each in a process of its own."""
    written = run(installed, tmp_path, "promptly", "init")
    assert (written.returncode, written.stderr) == (0, "")
    config = tmp_path / "promptly.yaml"
    (application,) = yaml.safe_load(config.read_text(encoding="utf-8"))["applications"]

    looked = run(installed, tmp_path, "promptly", "doctor", config.name, "--json")
    findings = {each["check"]: each for each in json.loads(looked.stdout)["findings"]}
    assert looked.returncode in (0, 1), looked.stderr
    assert str(installed) in findings["python"]["found"]
    assert findings["packages"]["verdict"] == "ok", "it reads the versions of what is installed"

    planned = run(installed, tmp_path, "promptly", "plan", config.name, "--device", "cpu", "--offline")
    assert planned.returncode == 0, planned.stderr
    assert application["args"]["models"][0]["id"] in planned.stdout


def test_the_client_of_the_examples_installs_beside_it(installed: Path, tmp_path: Path) -> None:
    """`pip install openai`, as docs/examples.md says. The tests' environment has it: nothing is fetched."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "--python", str(installed / "bin" / "python"), "install", "openai"]
    done = subprocess.run(command, capture_output=True, text=True, env=outside(), timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "already satisfied: openai" in done.stdout
    assert run(installed, tmp_path, "python", "-c", "import openai").returncode == 0
