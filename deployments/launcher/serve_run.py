"""``serve run FILE`` of a Ray that is still starting: this process imports Serve meanwhile, which takes
seconds (docs/benchmarks.md), and goes on when it reads a line.

``serve run`` waits for Serve's proxies before it deploys. Here Serve starts in a thread, and the application
is deployed as soon as there is a controller: proxies and the graph's build, each a process that imports
Serve, start beside each other.

Checked against Ray 2.60. When it moves, look at ``serve_start``: it waits for the proxies only where it has
made the controller.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

NAMESPACE = "serve"
"""Serve's own; nothing else has actors in it."""

LOOK_S = 0.05


def main() -> None:
    import ray
    from ray.serve.scripts import cli

    if not sys.stdin.readline():
        return  # the launcher has ended
    if len(sys.argv) == 2 and sys.argv[1].endswith((".yml", ".yaml")):
        ray.init(namespace=NAMESPACE)
        threading.Thread(target=_start_serve, args=(Path(sys.argv[1]),), daemon=True).start()
        while not _has_controller():
            time.sleep(LOOK_S)
    cli(["run", *sys.argv[1:]], prog_name="serve")


def _start_serve(config: Path) -> None:
    """With the file's options, as ``serve run`` does; where that fails, it ends this process."""
    from ray import serve

    try:
        serve.start(**_options(config))
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _options(config: Path) -> dict[str, Any]:
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


def _has_controller() -> bool:
    from ray.util import list_named_actors

    return any(actor["namespace"] == NAMESPACE for actor in list_named_actors(all_namespaces=True))


if __name__ == "__main__":
    main()
