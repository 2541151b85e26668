"""Bad input through the real HTTP path: a clear error that names the field, and the next request works."""

from __future__ import annotations

import io
from typing import Any

import aiohttp
import pytest
from support.bad_input import BAD_REQUESTS, BadRequestCase, raw_request
from support.graph import CHAT, Graph, chat


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=lambda case: case.name)
async def test_bad_input_gets_a_clear_error(
    http: aiohttp.ClientSession, plain: Graph, case: BadRequestCase
) -> None:
    headers = {"content-type": "application/json"} | case.headers
    async with http.request(
        case.method, plain.url + case.path, data=io.BytesIO(case.body("scripted")), headers=headers
    ) as response:
        body: Any = await response.json()
    assert response.status == case.status, body
    assert body["error"]["param"] == case.param
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    async with http.post(plain.url + CHAT, json=chat("say fine")) as after:
        assert after.status == 200


async def test_a_header_that_is_no_utf8_is_named(plain: Graph) -> None:
    status, body = await raw_request(plain.url + CHAT, b"x-strange: \xff\xfe\r\n", b"{}")
    assert status == 400
    assert b'"param":"x-strange"' in body
