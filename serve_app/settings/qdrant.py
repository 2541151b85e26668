"""Settings of a Qdrant server (or cluster) that holds the cache."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from serve_app.settings.base import Frozen

SPACE = re.compile(r"\s")


class QdrantSettings(Frozen):
    """The server's address, and how its collection is created.

    ``shard_number``, ``replication_factor``, ``on_disk`` and ``quantize`` apply when the collection
    is created; an existing collection keeps its own.
    """

    url: str = Field(
        description="Such as `http://host:6333`; `https` for TLS; the port is 6333 if none is given."
    )
    key_env: str | None = Field(
        default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Variable that holds its API key."
    )
    prefer_grpc: bool = Field(default=False, description="gRPC instead of REST; with TLS if `url` has it.")
    grpc_port: int = Field(default=6334, ge=1, le=65_535)
    timeout_s: float = Field(default=2.0, gt=0, le=60, description="Longest wait for one call.")
    collection: str = Field(
        default="promptly-cache",
        pattern=r"^[A-Za-z0-9_-]{1,128}$",
        description="Prefix of the collection's name; layout and embedder are appended.",
    )
    shard_number: int | None = Field(default=None, ge=1, description="Default: the server's.")
    replication_factor: int | None = Field(default=None, ge=1, description="Default: the server's.")
    on_disk: bool = Field(default=False, description="Vectors stay on disk instead of in memory.")
    quantize: bool = Field(
        default=False,
        description="Search int8 vectors in memory, then rescore with the full ones: "
        "useful with `on_disk`, or with millions of entries.",
    )

    @field_validator("url")
    @classmethod
    def _is_server(cls, url: str) -> str:
        if SPACE.search(url):
            raise ValueError("expected a server's URL such as `http://host:6333`")
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if not is_server or parts.query or parts.fragment:
            raise ValueError("expected a server's URL such as `http://host:6333`")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL holds no key: name a variable in `key_env`")
        return url.rstrip("/")
