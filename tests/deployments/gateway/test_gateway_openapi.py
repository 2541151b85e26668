"""`/openapi.json` says what the gateway does: held against the table of routes, and against the gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import schemathesis
from benchmarks.fuzz import with_models
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi.schemas import OpenApiSchema
from support.gateway import FAST, MODEL, Running, gateway
from support.graph import AS_ADMIN

from serve_app.api.openapi import all_errors, openapi_path
from serve_app.api.routes import ROUTES, Access

FILLED = {"id": "x", "item": "x", "model": "m", "rest": "nothing", "file": "console.js"}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


async def description(running: Running) -> dict[str, Any]:
    async with running.http.get("/openapi.json") as response:
        assert response.status == 200
        document: dict[str, Any] = await response.json()
        return document


async def test_every_route_and_method_of_the_gateway_is_described_and_nothing_else() -> None:
    async with gateway() as running:
        document = await description(running)
        assert set(document["paths"]) == {openapi_path(route) for route in ROUTES}
        for path, item in document["paths"].items():
            for method in METHODS:
                target = path.format(**FILLED)
                async with running.http.request(method, target) as response:
                    unknown = response.status == 404 and "No such path" in await response.text()
                missing = unknown or response.status == 405
                assert missing == (method.lower() not in item), (method, path, response.status)


async def test_a_route_with_an_engine_behind_it_names_every_status_that_can_come() -> None:
    statuses = {str(error.status) for error in all_errors()}
    async with gateway() as running:
        chat = (await description(running))["paths"]["/v1/chat/completions"]["post"]
        assert statuses | {"200", "4XX"} == set(chat["responses"])


@pytest.mark.parametrize("access", list(Access))
async def test_who_may_use_a_route_is_what_the_table_says(access: Access) -> None:
    async with gateway(tenants=("a",)) as running:
        for route in ROUTES:
            if route.access is not access or route.handler == "ready":
                continue
            method = next(iter(route.operations))
            types = route.media_types(method)
            headers = {"content-type": types[0]} if types else {}
            target = openapi_path(route).format(**FILLED)
            async with running.http.request(method, target, headers=headers) as response:
                assert (response.status == 401) == (access is not Access.OPEN), (method, target)


async def test_what_schemathesis_sends_is_answered_as_described() -> None:
    async with gateway(FAST) as running:
        document = with_models(await description(running), [MODEL])
        schema: OpenApiSchema = schemathesis.openapi.from_dict(document)
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 20
        for operation in operations:
            await asyncio.to_thread(conforms, operation, running.url)


def conforms(operation: Any, url: str) -> None:
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        response = case.call(base_url=url, headers=AS_ADMIN)
        case.validate_response(response, checks=CHECKS)

    ask()


async def test_the_page_for_people_loads_nothing() -> None:
    async with gateway() as running, running.http.get("/docs") as response:
        page = await response.text()
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["content-security-policy"].startswith("default-src 'none'")
        assert not any(word in page for word in ("<script", "<link", "<img", "src=", "http://", "https://"))
        assert all(openapi_path(route) in page for route in ROUTES)
        assert MODEL in page


async def test_where_keys_are_asked_for_the_description_names_no_model() -> None:
    async with gateway(tenants=("a",)) as running:
        for path in ("/openapi.json", "/docs"):
            async with running.http.get(path) as response:
                assert response.status == 200
                assert f'"{MODEL}"' not in await response.text()


@pytest.mark.parametrize(
    "path", ["/v1/models", "/health", "/ping", "/version", "/openapi.json", "/docs", "/admin/fleet"]
)
async def test_a_slash_at_the_end_changes_nothing(path: str) -> None:
    async with gateway() as running:
        async with running.http.get(path + "/", allow_redirects=False) as response:
            assert response.status == 200
        async with running.http.head(path) as response:
            assert response.status == 200


async def test_requests_with_a_slash_at_the_end_are_answered_and_relayed_as_without() -> None:
    async with gateway() as running:
        assert (
            await running.send({"model": MODEL, "prompt": "x", "max_tokens": 1}, "/v1/completions/")
        ).status == 200
        assert (await running.send({"model": MODEL}, "/v1/nothing/")).error["code"] == "path_not_offered"


async def test_the_version_is_said() -> None:
    async with gateway() as running:
        assert (await running.get("/version"))["version"][0].isdigit()
        assert (await running.get("/ping")) == {"status": "ok"}
        async with running.http.post("/ping") as response:
            assert response.status == 200
