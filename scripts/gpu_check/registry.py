"""All checks, the most telling first. Their budgets together are the 25 minutes of the whole run."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_check.configs import configs
from gpu_check.contract import Check
from gpu_check.environment import environment
from gpu_check.fp8 import fp8
from gpu_check.kill import kill
from gpu_check.memory import plan
from gpu_check.rest import sleep
from gpu_check.serving import serving
from gpu_check.speculation import speculation

CHECKS: Sequence[Check] = (
    Check("environment", "What an engine needs of the machine around it.", 20, environment),
    Check("configs", "Every shipped GPU config on pretended GPUs, and its plan.", 90, configs),
    Check("plan", "The plan's memory against that of a started engine.", 90, plan),
    Check("serving", "Bare vLLM's server against Promptly, a closed loop.", 320, serving),
    Check("speculation", "Each method that fits; greedy answers in float32.", 400, speculation),
    Check("kill", "SIGKILL to an engine in mid-stream; the other continues.", 160, kill),
    Check("sleep", "A replica without work sleeps, and wakes for a request.", 220, sleep),
    Check("fp8", "FP8 weights and KV cache against 16 bits.", 200, fp8, needs_gpu=True),
)
