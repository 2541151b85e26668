"""Promptly as a config file starts it, but with engines that compute nothing. ``promptly apply`` replaces
their replicas like any engine's."""

from __future__ import annotations

import os
from typing import Any

from ray import serve

from benchmarks.peers.nodes_app import scripted
from deployments.graph import build_graph
from deployments.platform.secret_environment import with_secrets
from deployments.platform.versions import keep_versions
from serve_app.settings import ModelSettings, parse_args

IMPORT_PATH = "benchmarks.peers.scripted_app:build"
SLOTS, TOKENS, ITL_MS = 256, 100, 50.0  # five seconds an answer


def build(args: dict[str, Any]) -> serve.Application:
    keep_versions()  # as the builder of a real application does
    settings = parse_args(args, source="scripted_app")
    ports = settings.network.private_ports

    def engine(model: ModelSettings) -> serve.Application:
        sim = {"model": model.id, "slots": SLOTS, "tokens": TOKENS, "itl_ms": ITL_MS}
        cpus = model.managed_engine.num_cpus + model.managed_engine.num_devices
        return scripted(model, sim, ports, ray_actor_options={"num_cpus": cpus})

    return build_graph(settings, with_secrets(os.environ), engine=engine)
