"""HAProxy alone in front of a server: the least that a proxy costs.

The program, its threads and the options for each request are those of Serve's own config.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray.serve._private.constants import RAY_SERVE_HAPROXY_NBTHREAD
from ray.serve._private.haproxy import get_haproxy_binary

from benchmarks.peers.endpoint import Endpoint, local_url
from benchmarks.peers.processes import scratch_folder, server
from deployments.launcher.ports import LOOPBACK, free_port


@contextmanager
def haproxy_alone(url: str, model: str) -> Iterator[Endpoint]:
    port = free_port()
    with scratch_folder() as folder:
        file = folder / "haproxy.cfg"
        file.write_text(config(port, url), encoding="utf-8")
        command = [str(Path(get_haproxy_binary())), "-db", "-f", str(file)]
        with server("HAProxy alone", command, {}, local_url(port), model) as endpoint:
            yield endpoint


def config(port: int, url: str) -> str:
    """The config of a proxy on ``port`` for the server at ``url``."""
    return f"""global
    maxconn 2000
    nbthread {RAY_SERVE_HAPROXY_NBTHREAD}
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    option httplog
    option abortonclose
    option splice-response
    option http-no-delay
    option idle-close-on-response
frontend clients
    bind {LOOPBACK}:{port}
    default_backend engine
backend engine
    server engine {url.removeprefix("http://")}
"""
