"""An application of a Serve config file whose engines follow a script."""

from __future__ import annotations

import os
from typing import Any

from ray import serve

from deployments.graph import build_graph, engine_options
from deployments.platform.versions import keep_versions
from serve_app.request.admin_token import TOKEN_VARIABLE
from serve_app.settings import ModelSettings, parse_args
from support.graph import ADMIN_TOKEN
from support.scripted_engine import ScriptedEngine

IMPORT_PATH = "support.upgrade_app:build"


def build(args: dict[str, Any]) -> serve.Application:
    keep_versions()  # as the builder of a real application does
    settings = parse_args(args, source="upgrade")
    return build_graph(settings, {**os.environ, TOKEN_VARIABLE: ADMIN_TOKEN}, engine=_engine)


def _engine(model: ModelSettings) -> serve.Application:
    options = engine_options(model) | {"ray_actor_options": {"num_cpus": 0.1}}
    return serve.deployment(ScriptedEngine, name=f"Engine:{model.id}", **options).bind(model)
