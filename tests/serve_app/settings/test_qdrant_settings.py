"""A Qdrant server's settings: which URLs it takes, and that no key is written into them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.settings.qdrant import QdrantSettings


@pytest.mark.parametrize(
    "url",
    ["http://qdrant:6333", "https://cloud.example", "http://[::1]:6333", "https://proxy.example:443/qdrant"],
)
def test_a_servers_url_is_taken(url: str) -> None:
    assert QdrantSettings(url=url).url == url
    assert QdrantSettings(url=f"{url}/").url == url


@pytest.mark.parametrize(
    "url", ["", "qdrant:6333", "grpc://qdrant:6334", "http://", "http://a b", "http://q?x=1", "http://q:0"]
)
def test_what_is_no_servers_url_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ValidationError, match="such as `http://host:6333`"):
        QdrantSettings(url=url)


def test_a_key_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ValidationError, match="name a variable in `key_env`") as caught:
        QdrantSettings(url="https://user:secret@qdrant:6333")
    assert "secret" not in str(caught.value.errors()[0]["msg"])


@pytest.mark.parametrize(
    "fields",
    [
        {"key_env": "not a name"},
        {"collection": ""},
        {"collection": "a/b"},
        {"timeout_s": 0.0},
        {"grpc_port": 0},
        {"replication_factor": 0},
        {"shard_number": 0},
        {"api_key": "secret"},
    ],
)
def test_wrong_values_and_unknown_keys_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        QdrantSettings(**({"url": "http://qdrant:6333"} | fields))
