"""The front door of one node, as the variables of this process set it: python -m support.cluster_door PORT

Serve's own callback is run, and its config has Serve's own defaults. Files lie in a folder per node, as
Serve's actor has them. It says `ready`, and ends when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from ray._common.utils import import_attr
from ray.serve._private import constants, controller
from ray.serve._private.haproxy import HAProxyConfig
from ray.serve.config import HTTPOptions

from deployments.platform.front_door import FrontDoor, FrontDoorManager

NODE = "0" * 56
"""As long as a node's id."""


def of_this_node(path: str) -> str:
    place = Path(path)
    return str(place.parent / NODE / place.name)


async def run(port: int) -> None:
    import_attr(os.environ["RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH"])()
    serve_controller: Any = controller
    started_on_nodes = serve_controller.HAProxyManager.__ray_metadata__.modified_class
    assert issubclass(started_on_nodes, FrontDoorManager)
    config = HAProxyConfig(
        http_options=HTTPOptions(host="127.0.0.1", port=port),
        is_head=True,
        socket_path=of_this_node(constants.RAY_SERVE_HAPROXY_SOCKET_PATH),
        server_state_base=of_this_node(f"{constants.RAY_SERVE_HAPROXY_SERVER_STATE_BASE}/state"),
        server_state_file=of_this_node(constants.RAY_SERVE_HAPROXY_SERVER_STATE_FILE),
        metrics_socket_path=of_this_node(constants.RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH),
    )
    front_door = FrontDoor(config, {}, of_this_node(constants.RAY_SERVE_HAPROXY_CONFIG_FILE_LOC))
    await front_door.start()
    try:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await front_door.stop()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1])))
