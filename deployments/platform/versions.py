"""Versions of deployments, so that Serve replaces only what a new config changes.

Serve gives all deployments of a config file one version, made of the whole file: a changed threshold would
load every model again. Names of Ray Serve that are not public, checked against Ray 2.60; watch them when Ray
moves:

- ``Deployment._version``: what ``serve.run`` takes for the version. The public argument is gone.
- ``ray.serve._private.application_state.build_app`` and ``get_deploy_args``: how the task that builds a
  config file's application makes what the controller gets. Both are wrapped in that task's process, which is
  a new one each time; the second gets the version that the first saw.
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve._private import application_state

KEEPS = "keeps_versions"


def versioned(application: serve.Application, version: str) -> serve.Application:
    """``application`` with a version for its deployment, and for those that only it calls by name."""
    deployment: Any = application._bound_deployment
    deployment._version = version
    for value in deployment.init_kwargs.values():
        if isinstance(value, serve.Application):
            versioned(value, version)
    return application


def keep_versions() -> None:
    """From now on this process builds applications with the versions of :func:`versioned`; a deployment
    without one gets Serve's."""
    state: Any = application_state
    if hasattr(state.build_app, KEEPS):
        return
    build, arguments, versions = state.build_app, state.get_deploy_args, {}

    def build_app(*args: Any, **kwargs: Any) -> Any:
        built = build(*args, **kwargs)
        versions.update({each.name: each._version for each in built.deployments})
        return built

    def get_deploy_args(name: str, *, version: str, **kwargs: Any) -> Any:
        return arguments(name=name, version=versions.get(name) or version, **kwargs)

    setattr(build_app, KEEPS, True)
    state.build_app, state.get_deploy_args = build_app, get_deploy_args
