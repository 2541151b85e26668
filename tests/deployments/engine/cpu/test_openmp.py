from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from deployments.engine.cpu.openmp import READ_AT_IMPORT, import_environment
from deployments.engine.cpu.threads import BIND

ASK_VLLM = f"""
import json, os
from vllm.config import VllmConfig
from vllm.utils.ompmultiprocessing import OMPProcessManager

config = VllmConfig()
with OMPProcessManager(config).configure_omp_envs(rank=0, local_rank=0):
    print(json.dumps({{name: os.environ[name] for name in {READ_AT_IMPORT} if name in os.environ}}))
"""


@pytest.mark.parametrize("cpus", ["0", "0,1"])
def test_vllm_would_set_the_same_variables(cpus: str) -> None:
    """vLLM changes its process's environment, so it is asked in one of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in READ_AT_IMPORT}
    environment[BIND] = cpus
    asked = [sys.executable, "-c", ASK_VLLM]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert import_environment(environment) == json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "environment",
    [{}, {BIND: "auto"}, {BIND: "0-3"}, {BIND: "0|1"}, {BIND: "0,1", "LD_PRELOAD": "/usr/lib/libiomp5.so"}],
)
def test_where_vllm_chooses_the_threads_nothing_is_known_of_them(environment: dict[str, str]) -> None:
    assert import_environment(environment) is None


def test_what_the_operator_preloads_stays() -> None:
    found = import_environment({BIND: "0,1", "LD_PRELOAD": "/usr/lib/own.so"})
    assert found is not None
    assert "/usr/lib/own.so" in found["LD_PRELOAD"].split(":")
