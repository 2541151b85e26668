"""The servers that Promptly is compared with, and Promptly itself. Each is a context manager that yields an
`Endpoint`.

    with ray_serve_llm_default("scripted") as endpoint:
        measure(endpoint.url, endpoint.model)

Enter them in the main thread, one at a time: a peer ends when the thread that started it ends.
"""

from benchmarks.peers.endpoint import Endpoint, PeerError
from benchmarks.peers.haproxy_alone import haproxy_alone
from benchmarks.peers.litellm_proxy import litellm
from benchmarks.peers.promptly import promptly
from benchmarks.peers.ray_serve_llm import (
    Script,
    ray_serve_llm_default,
    ray_serve_llm_direct,
    ray_serve_llm_real,
)
from benchmarks.peers.vllm_server import bare_vllm

__all__ = [
    "Endpoint",
    "PeerError",
    "Script",
    "bare_vllm",
    "haproxy_alone",
    "litellm",
    "promptly",
    "ray_serve_llm_default",
    "ray_serve_llm_direct",
    "ray_serve_llm_real",
]
