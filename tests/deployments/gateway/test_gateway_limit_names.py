"""A limit of a model is set under the model's own name: another one would never bind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.gateway import MODEL
from test_gateway_metered_routes import limited

from deployments.gateway.endpoints.admin_limits import require_own_name
from serve_app.errors import BadRequest
from serve_app.model_choice.names import ModelNames, Served

OWN = Served("sim", "sim")
NAMES = ModelNames({"sim": OWN, "nick": OWN, "lora": Served("lora", "sim", "/l")}, ("auto",), ("embedder",))


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        ("model:nick", "'nick' is another name of 'sim'"),
        ("use:acme/nick", "'nick' is another name of 'sim'"),
        ("model:auto", "'auto' chooses among models"),
        ("model:smi", "there is no model 'smi'; known: sim, nick"),
    ],
)
def test_a_name_that_would_never_bind_is_refused(scope: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as refused:
        require_own_name(scope, NAMES)
    assert refused.value.details.param == "scope"


@pytest.mark.parametrize("scope", ["model:sim", "use:acme/lora", "model:embedder", "tenant:nick", "key:nick"])
def test_an_own_name_is_taken(scope: str) -> None:
    require_own_name(scope, NAMES)


async def test_the_route_knows_the_models(tmp_path: Path) -> None:
    async with limited(tmp_path, requests_per_minute=100) as running:

        async def put(scope: str) -> tuple[int, Any]:
            limit = {"scope": scope, "requests_per_minute": 5}
            headers = running.headers("acme")
            async with running.http.put("/admin/limits", json=limit, headers=headers) as response:
                return response.status, await response.json()

        assert (await put(f"model:{MODEL}"))[0] == 200
        status, refused = await put("model:no-such-model")
        assert (status, refused["error"]["param"]) == (400, "scope")
