"""Sizing an engine before anything is loaded: memory, limits, speed, replicas and cost, as pure functions.

Numbers follow vLLM 0.29; each formula and constant names its source. ``deployments.cli`` reads models and
traces, and prints.
"""

from serve_app.planning.architecture import Architecture, read_architecture
from serve_app.planning.cost import Cost, cost
from serve_app.planning.engine_request import EngineRequest, configured, engine_request
from serve_app.planning.hardware import DEVICES, Device, device_names, find_device, find_reported
from serve_app.planning.load import (
    Engine,
    Latency,
    Load,
    Target,
    Trace,
    latency_at,
    replay,
    replicas_for,
    replicas_for_trace,
    trace_load,
)
from serve_app.planning.memory import Memory, kv_bytes_per_token
from serve_app.planning.plan import ModelFiles, ModelPlan, check_cluster, plan_model
from serve_app.planning.problems import Problem
from serve_app.planning.queueing import erlang_c, mean_wait_s
from serve_app.planning.report import Demand, report
from serve_app.planning.rules import recording_rules
from serve_app.planning.speed import USUAL, Efficiency, Speed
from serve_app.planning.weights import StoredWeights

__all__ = [
    "DEVICES",
    "USUAL",
    "Architecture",
    "Cost",
    "Demand",
    "Device",
    "Efficiency",
    "Engine",
    "EngineRequest",
    "Latency",
    "Load",
    "Memory",
    "ModelFiles",
    "ModelPlan",
    "Problem",
    "Speed",
    "StoredWeights",
    "Target",
    "Trace",
    "check_cluster",
    "configured",
    "cost",
    "device_names",
    "engine_request",
    "erlang_c",
    "find_device",
    "find_reported",
    "kv_bytes_per_token",
    "latency_at",
    "mean_wait_s",
    "plan_model",
    "read_architecture",
    "recording_rules",
    "replay",
    "replicas_for",
    "replicas_for_trace",
    "report",
    "trace_load",
]
