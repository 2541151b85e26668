"""``serve run FILE`` of a Ray that is still starting: this process imports Serve meanwhile, which takes
seconds (docs/benchmarks.md), and goes on when it reads a line.

``serve run`` waits for Serve's proxies before it deploys. Here Serve starts in a thread, and the application
is deployed as soon as there is a controller: the proxies and the process that builds the graph, each of which
imports Serve, start beside each other. (So the log says that the second of both connects to a running Serve.)

Checked against Ray 2.60. When it moves, look at ``serve run``, and at ``serve_start``, which waits for the
proxies only where it has made the controller.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

NAMESPACE = "serve"
"""Serve's own; nothing else has actors in it."""

LOOK_S = 0.05


def main() -> None:
    import ray
    from ray import serve
    from ray.serve.scripts import cli

    if not sys.stdin.readline():
        return  # the launcher has ended
    if (config := Path(sys.argv[-1])).is_file():
        starting = partial(serve.start, **serve_options(config))
        ray.init(namespace=NAMESPACE)
        threading.Thread(target=succeed_or_end, args=(starting,), daemon=True).start()
        while not _has_controller():
            time.sleep(LOOK_S)
    cli(["run", *sys.argv[1:]], prog_name="serve")


def serve_options(config: Path) -> dict[str, Any]:
    """The arguments of ``serve.start`` by which ``serve run`` starts Serve for this file."""
    import yaml
    from ray.serve.config import gRPCOptions
    from ray.serve.schema import ServeDeploySchema

    file = ServeDeploySchema.model_validate(yaml.safe_load(config.read_text(encoding="utf-8")))
    return {
        "proxy_location": file.proxy_location,
        "http_options": file.http_options.model_dump(),
        "grpc_options": gRPCOptions(**file.grpc_options.model_dump()),
        "controller_options": file.controller_options,
    }


def succeed_or_end(work: Callable[[], object]) -> None:
    """For a thread: where ``work`` fails, the whole process ends, with the reason in its log. A proxy that is
    late, or that the controller starts again because it is, ends nothing: the launcher waits for one."""
    from ray.exceptions import RayActorError

    try:
        work()
    except (TimeoutError, RayActorError):
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _has_controller() -> bool:
    from ray.util import list_named_actors

    return any(actor["namespace"] == NAMESPACE for actor in list_named_actors(all_namespaces=True))


if __name__ == "__main__":
    main()
