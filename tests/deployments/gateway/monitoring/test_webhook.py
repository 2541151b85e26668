"""A webhook is told of alerts, in bounded time, and does no harm where it is dead."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from pydantic import ValidationError
from support.graph import eventually

from deployments.gateway.monitoring.webhook import MOST_WAITING, Webhook
from serve_app.alerts import Change, rules_of
from serve_app.settings.alerts import AlertSettings

RULE = rules_of(AlertSettings())[0]
FIRES = Change(RULE, "m", firing=True, value=1234.5)


class Receiver:
    """Answers with the given statuses in turn, then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.seen: list[tuple[str, dict[str, object]]] = []
        self.came = asyncio.Event()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.seen.append((str(request.rel_url), await request.json()))
        self.came.set()
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, headers={"location": "/elsewhere"} if status == 302 else {})


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


class Waits:
    """Sleeps not at all, and remembers for how long; ``until`` so many were asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)


async def until(check: Callable[[], bool]) -> None:
    async def so() -> bool:
        return check()

    assert await eventually(so, within_s=5)


async def test_the_message_says_what_an_alert_does_and_nothing_of_requests() -> None:
    receiver = Receiver()
    async with receiving(receiver) as url:
        hook = Webhook(f"{url}/hooks/a?token=x", timeout_s=5, attempts=1)
        hook(FIRES, 1_700_000_000.0)
        await asyncio.wait_for(receiver.came.wait(), 5)
        await hook.close()
    ((target, message),) = receiver.seen
    assert target == "/hooks/a?token=x"
    assert message == {
        "source": "promptly",
        "state": "firing",
        "alert": "ttft_p95",
        "model": "m",
        "value": 1234.5,
        "limit": 1000.0,
        "unit": "ms",
        "summary": RULE.summary,
        "at": "2023-11-14T22:13:20.000+00:00",
        "text": "alert ttft_p95 of m fires: 1.23e+03, limit 1000 ms",
    }


@pytest.mark.parametrize("path", ["", "/", "/a/", "/a"])
async def test_the_path_is_kept_as_it_is(path: str) -> None:
    receiver = Receiver()
    async with receiving(receiver) as url:
        hook = Webhook(url + path, timeout_s=5, attempts=1)
        hook(FIRES, 0.0)
        await asyncio.wait_for(receiver.came.wait(), 5)
        await hook.close()
    assert receiver.seen[0][0] == (path or "/")


async def test_a_failed_attempt_is_repeated_with_growing_pauses() -> None:
    receiver, waits = Receiver(500, 503, 500), Waits()
    async with receiving(receiver) as url:
        hook = Webhook(url, timeout_s=5, attempts=4, sleep=waits)
        hook(FIRES, 0.0)
        await until(lambda: len(receiver.seen) == 4)
        await hook.close()
    assert waits.asked == [1.0, 2.0, 4.0]


async def test_a_redirect_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver(302)
    async with receiving(receiver) as url:
        hook = Webhook(url, timeout_s=5, attempts=1)
        hook(FIRES, 0.0)
        await until(lambda: "answered 302" in caplog.text)
        await hook.close()
    assert [target for target, _ in receiver.seen] == ["/"]


async def test_a_dead_webhook_costs_one_line_which_hides_its_token(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/secret-token"
        with caplog.at_level(logging.DEBUG, "ray.serve"):
            hook = Webhook(url, timeout_s=5, attempts=2, sleep=waits)
            for _ in range(3):
                hook(FIRES, 0.0)
            await until(lambda: len(waits.asked) == 3)
            await until(lambda: "is not told" in caplog.text)
            await hook.close()
    assert len(caplog.records) == 1
    assert "secret-token" not in caplog.text


async def test_a_webhook_that_never_answers_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    held: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    hook = Webhook(url, timeout_s=0.05, attempts=1)
    hook(FIRES, 0.0)
    await until(lambda: "no answer within 0.05 s" in caplog.text)
    await hook.close()
    for writer in held:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_what_waits_for_a_dead_webhook_is_bounded() -> None:
    never = asyncio.Event()

    async def wait(seconds: float) -> None:
        await never.wait()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        hook = Webhook(f"http://127.0.0.1:{unused.getsockname()[1]}", timeout_s=5, attempts=2, sleep=wait)
        for _ in range(10 * MOST_WAITING):
            hook(FIRES, 0.0)
        assert hook._waiting.qsize() == MOST_WAITING
        await hook.close()


async def test_whatever_one_message_meets_the_next_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    hook = Webhook("http://hooks..example.com/x", timeout_s=5, attempts=1, sleep=waits)
    hook(FIRES, 0.0)
    await until(lambda: "UnicodeError" in caplog.text)
    hook(FIRES, 0.0)
    await until(hook._waiting.empty)
    assert not hook._task.done()
    await hook.close()


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks..example.com/x",
        "https://h:99999/",
        "https://h:0/",
        "https://h:a/",
        "https://[::1/",
        f"https://{'a' * 64}.example.com/",
        "ftp://h/",
        "https:///x",
        "https://h/ x",
    ],
)
def test_an_address_that_cannot_be_called_is_refused_in_the_settings(url: str) -> None:
    with pytest.raises(ValidationError, match="expected a URL such as"):
        AlertSettings(webhook_url=url)


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com/x?token=y", "http://[::1]:80/", "https://bücher.de"]
)
def test_an_address_that_can_be_called_is_taken(url: str) -> None:
    assert AlertSettings(webhook_url=url).webhook_url == url
