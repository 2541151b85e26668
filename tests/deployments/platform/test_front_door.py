"""A real HAProxy with the project's config: before a gateway in this process, or before nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import ssl
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest
from support.front_door import Door, door, listens_on_loopback_alone
from support.gateway import FAST, Running, SimSettings, chat, gateway
from support.graph import CHAT, eventually

from deployments.launcher.status import answers_at
from deployments.platform.front_door import runs, wrapper_script
from serve_app.front_door import ProxyFiles, TemplateChangedError, harden, with_json_errors
from serve_app.settings.proxy import ProxySettings

ENDLESS = SimSettings(itl_ms=20.0, tokens=4000)
LOOPBACK = "127.0.0.1"
ONE_SECOND = ProxySettings(header_timeout_s=1)


def head(body: bytes, extra: bytes = b"") -> bytes:
    return (
        b"POST %s HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\n%scontent-length: %d\r\n\r\n"
        % (
            CHAT.encode(),
            extra,
            len(body),
        )
    )


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of a response."""
    async with asyncio.timeout(10):
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode().strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
    return int(first.split()[1]), headers, json.loads(body)


async def sent(door: Door, raw: bytes) -> tuple[int, dict[str, str], Any]:
    """What is answered to these bytes."""
    reader, writer = await asyncio.open_connection(LOOPBACK, door.port)
    try:
        writer.write(raw)
        return await answer(reader)
    finally:
        writer.close()


async def models(url: str) -> int:
    """The status of a plain request on a connection of its own; 0 where nothing listens."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"{url}/v1/models") as response:
            return response.status
    except aiohttp.ClientError:
        return 0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def variables_of(pid: int) -> set[bytes]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {entry.partition(b"=")[0] for entry in entries}


@asynccontextmanager
async def behind(
    settings: SimSettings = FAST, proxy: ProxySettings | None = None, **changes: Any
) -> AsyncIterator[tuple[Running, Door]]:
    async with gateway(settings) as running, door(running.url, proxy, **changes) as front:

        async def up() -> bool:
            return await models(front.url) == 200

        if proxy is None or proxy.tls_certificate is None:
            assert await eventually(up, within_s=5)
        yield running, front


# ---- clients that leave ----


async def test_who_leaves_after_head_and_body_in_two_writes_frees_the_engine_within_a_second() -> None:
    """As httpx sends, and with it the OpenAI and Anthropic clients. HAProxy rests afterwards, too."""
    body = json.dumps(chat("endless", max_tokens=4000)).encode()
    async with behind(ENDLESS) as (running, front):

        async def leave() -> None:
            _, writer = await asyncio.open_connection(LOOPBACK, front.port)
            writer.write(head(body))
            await writer.drain()
            await asyncio.sleep(0.02)  # the second write has to be a second packet
            writer.write(body)
            await asyncio.sleep(0.3)
            writer.close()

        async def all_there() -> bool:
            return await running.in_flight() == 14

        async def none_there() -> bool:
            return await running.in_flight() == 0

        async with asyncio.TaskGroup() as group:
            for _ in range(14):
                group.create_task(leave())
            assert await eventually(all_there, within_s=5)
        assert await eventually(none_there, within_s=1)
        spent = cpu_s(front.pid)
        await asyncio.sleep(0.5)
        assert cpu_s(front.pid) - spent <= 0.05


async def test_who_closes_its_sending_side_before_it_is_answered_hears_why_and_frees_the_engine() -> None:
    """`option abortonclose` takes the end of a client's data for its leaving: they look the same."""
    body = json.dumps(chat("endless", max_tokens=4000)).encode()
    async with behind(ENDLESS) as (running, front):
        reader, writer = await asyncio.open_connection(LOOPBACK, front.port)
        writer.write(head(body) + body)
        writer.write_eof()
        status, headers, said = await answer(reader)
        writer.close()
        assert (status, headers["content-type"]) == (400, "application/json")
        assert "closed its sending side" in said["error"]["message"]
        await running.until_idle()


# ---- HAProxy dies ----


async def test_a_killed_haproxy_is_back_within_two_seconds_and_can_be_reloaded() -> None:
    async with behind() as (_, front):
        killed = front.pid
        os.kill(killed, signal.SIGKILL)
        began = time.monotonic()

        async def back() -> bool:
            return await models(front.url) == 200

        assert await eventually(back, within_s=2)
        assert time.monotonic() - began < 2

        async def known() -> bool:
            return front.pid != killed

        assert await eventually(known, within_s=5)
        await front.reload()
        assert await models(front.url) == 200


async def test_a_haproxy_that_was_stopped_stays_stopped() -> None:
    async with door(None) as front:
        await front.front_door.stop()
        await asyncio.sleep(0.2)
        assert front.front_door.process is None
        assert await models(front.url) == 0


# ---- half-open connections ----


async def test_half_sent_headers_give_their_connections_back() -> None:
    async with behind(proxy=ONE_SECOND, maxconn=20) as (_, front), AsyncExitStack() as stack:
        readers = []
        for _ in range(22):
            reader, writer = await asyncio.open_connection(LOOPBACK, front.port)
            stack.callback(writer.close)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n")
            readers.append(reader)
        async with asyncio.timeout(4):
            assert await models(front.url) == 200
        status, headers, body = await answer(readers[0])
    assert (status, headers["content-type"]) == (408, "application/json")
    assert (body["error"]["code"], body["error"]["type"]) == ("header_timeout", "timeout_error")


async def test_one_address_has_a_bound_of_connections() -> None:
    async with (
        behind(proxy=ProxySettings(max_connections_per_source=4)) as (_, front),
        AsyncExitStack() as stack,
    ):
        held: list[asyncio.StreamWriter] = []

        async def refused() -> bool:
            """With four more connections: HAProxy counts them after the kernel has accepted them, and after a
            reload, such as that for the first members, its new process begins at none."""
            for _ in range(4):
                _, writer = await asyncio.open_connection(LOOPBACK, front.port)
                stack.callback(writer.close)
                held.append(writer)
            return await models(front.url) == 0

        async def let_in() -> bool:
            return await models(front.url) == 200

        assert await eventually(refused, within_s=10)
        for writer in held:
            writer.close()
        assert await eventually(let_in, within_s=10)


async def test_without_a_bound_any_number_connects() -> None:
    async with behind(proxy=ProxySettings(max_connections_per_source=0)) as (_, front):
        assert "stick-table" not in (front.folder / "haproxy.cfg").read_text()


# ---- errors of HAProxy's own ----


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /v1/mod els HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/\x01models HTTP/1.1\r\nhost: x\r\n\r\n",
        b"no http at all\r\n\r\n",
    ],
)
async def test_what_is_no_http_gets_an_error_in_openais_shape(raw: bytes) -> None:
    async with door(None) as front:
        status, headers, body = await sent(front, raw)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert body["error"]["type"] == "invalid_request_error"
    assert "15 kB" in body["error"]["message"]


@pytest.mark.parametrize(
    "raw",
    [
        b"FOO /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-a: a\x01b\r\n\r\n",
    ],
)
async def test_what_haproxy_passes_and_the_gateway_cannot_read_gets_one_too(raw: bytes) -> None:
    async with behind() as (_, front):
        status, headers, body = await sent(front, raw)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert body["error"]["code"] == "malformed_http"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"GET /health HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"POST /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 422),
        (
            b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
    ],
)
async def test_odd_transfer_encodings_are_answered_in_openais_shape(raw: bytes, expected: int) -> None:
    async with door(None) as front:
        status, headers, body = await sent(front, raw)
    assert (status, headers["content-type"]) == (expected, "application/json")
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(("version", "expected"), [("1.1", 400), ("1.0", 503)])
async def test_a_request_without_a_host_is_refused_where_http_asks_for_one(
    version: str, expected: int
) -> None:
    async with door(None) as front:
        status, headers, body = await sent(front, f"GET /v1/models HTTP/{version}\r\n\r\n".encode())
    assert (status, headers["content-type"]) == (expected, "application/json")
    assert body["error"]["message"]


async def test_without_an_application_or_a_gateway_the_error_says_so() -> None:
    request = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for gateway_url in (None, "http://127.0.0.1:1"):
        async with door(gateway_url) as front:
            status, headers, body = await sent(front, request)
            assert (status, headers["content-type"], headers["retry-after"]) == (503, "application/json", "1")
            assert body["error"]["code"] == "no_gateway"


async def test_a_path_outside_the_applications_is_not_found_while_there_is_one() -> None:
    async with door("http://127.0.0.1:1", prefix="/team") as front:
        status, headers, body = await sent(front, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (status, headers["content-type"]) == (404, "application/json")
    assert body["error"]["code"] == "not_found"


async def test_anthropics_client_reads_an_error_of_haproxys_own() -> None:
    async with (
        door("http://127.0.0.1:1") as front,
        anthropic.AsyncAnthropic(base_url=front.url, api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(anthropic.APIStatusError, match="No gateway is available now") as caught:
            await client.messages.create(
                model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]
            )
    assert isinstance(caught.value.body, dict)
    assert (caught.value.status_code, caught.value.body["type"]) == (503, "error")


async def test_a_gateway_that_breaks_is_a_502() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" if b"/health" in line else b"")
        writer.close()

    server = await asyncio.start_server(break_off, LOOPBACK, 0)
    async with server, door(f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}") as front:
        status, headers, body = await sent(front, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (status, headers["content-type"]) == (502, "application/json")
    assert body["error"]["code"] == "gateway_failed"


# ---- what is the operator's alone ----


async def test_statistics_metrics_and_the_admin_socket_are_the_owners() -> None:
    async with door(None) as front:
        for port in (front.stats_port, front.metrics_port):
            assert listens_on_loopback_alone(port)
        for name in ("a.sock", "haproxy.cfg"):
            assert stat.S_IMODE((front.folder / name).stat().st_mode) == 0o600, name


async def test_haproxy_inherits_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_KEY", "sk-secret")
    async with door(None) as front:
        names = variables_of(front.pid)
    assert b"VENDOR_KEY" not in names
    assert b"PATH" in names


async def test_where_no_program_may_start_the_packages_own_runs_and_the_log_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a folder that is mounted ``noexec``."""
    monkeypatch.setenv("VENDOR_KEY", "sk-secret")
    with caplog.at_level(logging.WARNING, logger="ray.serve"):
        async with door(None, runs=lambda _: False) as front:
            reader, writer = await asyncio.open_connection(LOOPBACK, front.port)
            writer.write(b"no http at all\r\n\r\n")
            async with asyncio.timeout(10):
                malformed = await reader.read()
            writer.close()
            status, _, body = await sent(front, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            names = variables_of(front.pid)
    assert malformed.startswith(b"HTTP/1.1 400")
    assert b"<html>" in malformed
    assert (status, body["error"]["code"]) == (503, "no_gateway")
    assert b"VENDOR_KEY" in names
    said = [record.getMessage() for record in caplog.records]
    assert any("HAProxy's answers to malformed requests stay HTML" in line for line in said)
    assert any("HAProxy inherits the environment of Ray's processes" in line for line in said)


def test_the_wrapper_keeps_what_serve_knows_its_haproxy_by(tmp_path: Path) -> None:
    binary = tmp_path / "stand-in"
    binary.write_text('#!/bin/sh\necho "$$ $* $PATH"\n')
    binary.chmod(0o700)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(wrapper_script(str(binary), {"PATH": "/bin:/usr/bin", "KEY": "k"}, None))
    wrapper.chmod(0o700)
    with subprocess.Popen([wrapper, "-db", "-sf", "1 2"], stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=10)
    assert said.strip() == f"{process.pid} -db -sf 1 2 /bin:/usr/bin"


@pytest.mark.parametrize(
    ("script", "mode", "expected"),
    [
        ("#!/bin/sh\nexit 0\n", 0o700, True),
        ("#!/bin/sh\nexit 1\n", 0o700, False),
        ("no program", 0o600, False),
    ],
)
def test_a_program_is_used_only_if_it_runs_where_it_lies(
    tmp_path: Path, script: str, mode: int, expected: bool
) -> None:
    program = tmp_path / "program"
    program.write_text(script)
    program.chmod(mode)
    assert runs(program) is expected


def test_a_program_without_the_known_texts_is_left_as_it_is() -> None:
    assert with_json_errors(b"HTTP/1.1 400 Bad request\r\n\r\n<html></html>\0") is None


def test_a_template_that_has_changed_is_an_error_and_no_hole() -> None:
    with pytest.raises(TemplateChangedError, match="splice-request"):
        harden("global\ndefaults\n", ProxySettings(), ProxyFiles({}, Path("o.sock")), 2)


WATCHED = "check observe layer4 error-limit 3 on-error mark-down"


def rendered(*servers: str, threads: int = 4) -> str:
    """What the changes look for in Serve's config."""
    lines = [
        "global",
        f"    nbthread {threads}",
        "    stats socket /a mode 666 level admin",
        "defaults",
        "    option splice-request",
        "    option httplog",
        "    errorfile 502 /e",
        "frontend prometheus",
        "    bind :1",
        "frontend http_frontend",
        "    bind 0.0.0.0:8000",
        "listen stats",
        "  bind *:2",
        "backend default_backend",
        "    http-request return",
        "backend app",
        *[f"    server {server}" for server in servers],
    ]
    return "\n".join([*lines, ""])


def hardened(text: str, gateways: Mapping[str, Path], cpus: int = 2) -> list[str]:
    files = ProxyFiles({404: Path("/404")}, Path("o.sock"), gateways=gateways)
    return [line.strip() for line in harden(text, ProxySettings(), files, cpus).splitlines()]


@pytest.mark.parametrize(
    ("server", "becomes"),
    [
        (f"R_app-Gateway-abc 127.0.0.1:30001 {WATCHED}", "R_app-Gateway-abc unix@/d/abc.sock check"),
        (f"R_app-Gateway-abc [::1]:30001 {WATCHED}", "R_app-Gateway-abc unix@/d/abc.sock check"),
        *[
            (server, server)
            for server in (
                f"R_app-Gateway-abc 10.0.0.7:30001 {WATCHED}",  # of another node
                f"R_app-Gateway-other 127.0.0.1:30001 {WATCHED}",
                "R_app-Gateway-abc 127.0.0.1:30001 check proto h2",  # gRPC
                "SERVE_PROXY_ACTOR-fallback-abcd 127.0.0.1:2 check backup",
            )
        ],
    ],
)
def test_a_gateway_of_the_same_node_is_reached_by_its_socket(server: str, becomes: str) -> None:
    lines = hardened(rendered(server), {"abc": Path("/d/abc.sock")})
    assert f"server {becomes}" in lines


@pytest.mark.parametrize(("threads", "cpus", "kept"), [(4, 2, 2), (4, 16, 4), (1, 2, 1)])
def test_haproxy_has_no_more_threads_than_cpus(threads: int, cpus: int, kept: int) -> None:
    assert f"nbthread {kept}" in hardened(rendered(threads=threads), {}, cpus)


# ---- TLS ----


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """server.pem and server.key for 127.0.0.1; ca.pem, and client.pem of that authority."""
    folder = tmp_path_factory.mktemp("tls")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("server", "ca"):
        files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
        openssl(*new, "-x509", *files, "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{LOOPBACK}")
    request = ("-keyout", str(folder / "client.key"), "-out", str(folder / "client.csr"))
    openssl(*new[:-2], *request, "-subj", "/CN=client")
    signer = (
        "-CA",
        str(folder / "ca.pem"),
        "-CAkey",
        str(folder / "ca.key"),
        "-CAcreateserial",
        "-days",
        "2",
    )
    openssl("x509", "-req", "-in", str(folder / "client.csr"), *signer, "-out", str(folder / "client.pem"))
    return folder


async def status_over_tls(front: Door, folder: Path, *, with_certificate: bool) -> int:
    trust = ssl.create_default_context(cafile=str(folder / "server.pem"))
    if with_certificate:
        trust.load_cert_chain(folder / "client.pem", folder / "client.key")
    url = f"https://{LOOPBACK}:{front.port}/v1/models"
    async with aiohttp.ClientSession() as http, http.get(url, ssl=trust) as response:
        return response.status


async def test_with_a_certificate_the_front_door_speaks_tls_alone(certificates: Path) -> None:
    files = {"tls_certificate": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    async with behind(proxy=ProxySettings(**files)) as (_, front):
        assert await status_over_tls(front, certificates, with_certificate=False) == 200
        assert await models(front.url) == 0
        assert stat.S_IMODE((front.folder / "certificate.pem").stat().st_mode) == 0o600


async def test_with_a_client_authority_only_its_clients_come_in(certificates: Path) -> None:
    files = {
        "tls_certificate": str(certificates / "server.pem"),
        "tls_key": str(certificates / "server.key"),
        "tls_client_ca": str(certificates / "ca.pem"),
    }
    async with behind(proxy=ProxySettings(**files)) as (_, front):
        assert await status_over_tls(front, certificates, with_certificate=True) == 200
        with pytest.raises(aiohttp.ClientError):
            await status_over_tls(front, certificates, with_certificate=False)
        own = front.folder / "o.sock"
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
        assert await asyncio.to_thread(answers_at, own, "/ready")
