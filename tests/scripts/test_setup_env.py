"""The set-up says at once what a GPU engine would miss minutes later."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "scripts" / "setup_env.sh"


def check_gpu(
    folder: Path, driver: str, *programs: str, headers: bool = True, has_driver: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run the set-up's check with these programs alone, a driver, and a Python with ``headers`` or not."""
    said = {"nvidia-smi": f"echo {driver}", "python": f"exit {int(not headers)}"} | dict.fromkeys(
        programs, ":"
    )
    if not has_driver:
        del said["nvidia-smi"]
    for name, does in said.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    (folder / "head").symlink_to("/usr/bin/head")
    code = f"source {SETUP}; PATH={folder}; check_gpu python"
    return subprocess.run(["/bin/bash", "-c", code], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("driver", ["580.65.06", "595.10", ""])
def test_a_machine_that_has_all_passes(tmp_path: Path, driver: str) -> None:
    ran = check_gpu(tmp_path, driver, "g++")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_old_driver_is_refused_with_the_way_out(tmp_path: Path) -> None:
    ran = check_gpu(tmp_path, "570.86.15", "g++")
    assert ran.returncode == 1
    assert "the NVIDIA driver is 570.86.15, and PyTorch for CUDA 13 needs 580 or newer" in ran.stderr
    assert "PROMPTLY_HARDWARE=cpu" in ran.stderr


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    assert "g++ is not installed" in check_gpu(tmp_path, "580.65").stderr


def test_a_machine_without_nvidia_smi_is_set_up(tmp_path: Path) -> None:
    """As while a container's image is built: set-up for GPUs is asked for, and there is none yet."""
    assert check_gpu(tmp_path, "", "g++", has_driver=False).returncode == 0


def test_missing_headers_of_python_are_named(tmp_path: Path) -> None:
    assert (
        "the headers of python are not installed"
        in check_gpu(tmp_path, "580.65", "g++", headers=False).stderr
    )


def default_python(folder: Path, *, own: str | None, system: str) -> str:
    """The Python that the set-up chooses where ``own`` is the one on the path and ``system`` the
    distribution's: what each lacks."""
    for name, lacks in {"python3.11": own, "system": system}.items():
        if lacks is None:
            continue
        code = f'case "$2" in *{lacks or "nothing"}*) exit 1;; esac'
        (folder / name).write_text(f"#!/bin/sh\n{code}\n")
        (folder / name).chmod(0o755)
    code = f"source {SETUP}; PATH={folder} SYSTEM_PYTHON={folder}/system; default_python"
    ran = subprocess.run(["/bin/bash", "-c", code], check=True, capture_output=True, text=True)
    return ran.stdout.strip().removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    ("own", "system", "chosen"),
    [
        ("", "", "python3.11"),
        ("enable-optimizations", "", "system"),
        ("enable-optimizations", "ensurepip", "python3.11"),
        ("enable-optimizations", "Python.h", "python3.11"),
        (None, "", "python3"),
    ],
)
def test_the_systems_python_stands_in_for_one_built_without_optimizations(
    tmp_path: Path, own: str | None, system: str, chosen: str
) -> None:
    assert default_python(tmp_path, own=own, system=system) == chosen


def installed(folder: Path, *, fails: str) -> tuple[int, list[str]]:
    """The exit status of installing a locked set, and what was called, where calls with ``fails`` fail."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\ncase "$*" in *{fails}*) exit 1;; esac\n')
    python.chmod(0o755)
    code = f"source {SETUP}; VENV={folder} LOG={folder}/log; install_locked gpu"
    ran = subprocess.run(["/bin/bash", "-c", code], check=False, capture_output=True, text=True)
    said = (folder / "calls").read_text().splitlines()
    return ran.returncode, [call.removeprefix("-m pip --disable-pip-version-check ") for call in said]


EDITABLE = "install --progress-bar off --no-deps --no-build-isolation --editable ."
BY_PIP = "install --progress-bar off --no-deps --require-hashes --requirement requirements/gpu.txt"


@pytest.mark.parametrize(
    ("fails", "calls"),
    [
        ("nothing", ["scripts/lock.py --install gpu", EDITABLE]),
        ("lock.py", ["scripts/lock.py --install gpu", BY_PIP, EDITABLE]),
    ],
)
def test_uv_installs_and_pip_where_it_cannot(tmp_path: Path, fails: str, calls: list[str]) -> None:
    assert installed(tmp_path, fails=fails) == (0, calls)


def test_a_set_that_neither_can_install_fails(tmp_path: Path) -> None:
    assert installed(tmp_path, fails="gpu")[0] == 1
