"""Versions of deployments, so that Serve replaces only what a new config changes.

Serve gives all deployments of a config file one version, made of the whole file: a changed threshold would
load every model again. Names of Ray Serve that are not public, checked against Ray 2.60; watch them when Ray
moves:

- ``Deployment._version``: what ``serve.run`` takes for the version. The public argument is gone.
- ``build_app`` and ``get_deploy_args`` as ``build_serve_application`` calls them, the task that builds a
  config file's application for the controller: both are wrapped there, and the second gets the version that
  the first saw. Ray sends that function by value, so its names are not those of its module; they are found in
  the frame that called the builder. The task's process is a new one each time.
"""

from __future__ import annotations

import inspect
from typing import Any

from ray import serve

TASK = "build_serve_application"


def versioned(application: serve.Application, version: str) -> serve.Application:
    """``application`` with a version for its deployment, and for those that only it calls by name."""
    deployment: Any = application._bound_deployment
    deployment._version = version
    for value in deployment.init_kwargs.values():
        if isinstance(value, serve.Application):
            versioned(value, version)
    return application


def keep_versions() -> None:
    """Called by the builder of a config file's application: it is built with the versions of
    :func:`versioned`. A deployment without one gets Serve's. Elsewhere nothing happens."""
    names = _names_of_task()
    if names is None:
        return
    build, arguments, versions = names["build_app"], names["get_deploy_args"], {}

    def build_app(*args: Any, **kwargs: Any) -> Any:
        built = build(*args, **kwargs)
        versions.update({each.name: each._version for each in built.deployments})
        return built

    def get_deploy_args(name: str, *, version: str, **kwargs: Any) -> Any:
        return arguments(name=name, version=versions.get(name) or version, **kwargs)

    names.update(build_app=build_app, get_deploy_args=get_deploy_args)


def _names_of_task() -> dict[str, Any] | None:
    """``None`` outside of the task."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != TASK:
        frame = frame.f_back
    return None if frame is None else frame.f_globals
