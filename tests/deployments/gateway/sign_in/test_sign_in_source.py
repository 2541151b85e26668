"""A provider that takes connections and answers nothing."""

from __future__ import annotations

import asyncio

import pytest

from deployments.gateway.sign_in.source import ProviderError, Source
from serve_app.settings.sign_in import OidcSettings


async def test_all_who_begin_a_login_at_a_silent_provider_wait_for_one_time_out() -> None:
    asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server, asyncio.timeout(10):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        # A time-out as long as the pause after a failure: the pause counts from the failure on.
        settings = OidcSettings(
            issuer=url, audiences=("us",), tenant="maths", timeout_s=0.5, min_refresh_s=0.5
        )
        source = Source(settings)
        try:
            failures = await asyncio.gather(
                *(source.configuration() for _ in range(5)), return_exceptions=True
            )
        finally:
            source.close()
    with pytest.raises(ProviderError, match="no answer within"):
        raise failures[-1]  # type: ignore[misc]
    assert asked == 1
