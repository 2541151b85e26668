"""Stopping leaves nothing behind; a restart keeps the entries; the other two ways to start work too."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
import yaml
from support.server import MODEL, ROOT, Server, ServerSlot, environment, get_json, serve_deploy, serve_run

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


def first_answer(server: Server) -> tuple[str, str]:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=FRANCE,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=64,
    )
    return raw.headers["x-cache"], raw.parse().choices[0].message.content or ""


def descendants(pid: int) -> set[int]:
    """Every process below ``pid``, by the parent that the kernel names."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


def alive(pid: int) -> str | None:
    """Name and state of a process that runs; ``None`` if it ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name_and_state = stat.partition("(")[2].rpartition(")")
    state = name_and_state[2].split()[0]
    return None if state == "Z" else f"{name_and_state[0]} ({state})"


def is_free(url: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", urlsplit(url).port or 0))
        except OSError:
            return False
        return True


def test_ctrl_c_leaves_no_process_and_no_port(served: Server, slot: ServerSlot) -> None:
    first_answer(served)
    below = descendants(served.process.pid)
    assert len(below) > 8  # Ray, Serve, HAProxy, vLLM: there is something to leave behind
    assert slot.stop() == 0
    assert {pid: found for pid in below if (found := alive(pid)) is not None} == {}
    assert is_free(served.url)


@pytest.mark.parametrize("start", [serve_run, serve_deploy], ids=["serve run", "serve deploy"])
def test_a_restart_in_another_way_keeps_the_entries(
    slot: ServerSlot, served: Server, store: Path, tmp_path: Path, start: object
) -> None:
    if slot.current is served:
        first_answer(served)
    assert callable(start)
    status, answer = first_answer(slot.start(start(tmp_path, store)))
    assert status == "exact"
    assert "Paris" in answer


PAGE = "http://page.test"


def changed(config: Path, options: dict[str, Any] | None = None, replicas: int = 1, **changes: Any) -> Path:
    """A copy of the config file; ``replicas`` and ``options`` are its model's, all else are settings."""
    document = yaml.safe_load(config.read_text())
    args = document["applications"][0]["args"]
    args["models"][0]["replicas"] = replicas
    args["models"][0]["engine"].setdefault("options", {}).update(options or {})
    args.update(changes)
    path = config.with_name(f"{len(list(config.parent.iterdir()))}.yaml")
    path.write_text(yaml.safe_dump(document))
    return path


def allows_the_page(server: Server) -> bool:
    """Whether the gateway answers a page of another origin; without keys it refuses all that it is not told
    of."""
    request = urllib.request.Request(f"{server.url}/v1/models", headers={"origin": PAGE})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bool(answer.headers["access-control-allow-origin"] == PAGE)
    except urllib.error.HTTPError as error:
        if error.code == 403:
            return False
        raise


def test_a_running_application_is_changed_and_changed_back_by_the_command(
    slot: ServerSlot, store: Path, tmp_path: Path
) -> None:
    server = slot.current
    if server is None or not server.dashboard:
        server = slot.start(serve_deploy(tmp_path, store))
    before = get_json(f"{server.url}/admin/engines")
    named = environment(**server.dashboard, PROMPTLY_CACHE=str(tmp_path / "kept"))

    def apply(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deployments.cli", "apply", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=named, capture_output=True, text=True, timeout=120, check=False
        )

    assert not allows_the_page(server)
    refused = apply(str(changed(server.config, replicas=40)))
    assert refused.returncode == 1
    assert "replicas" in refused.stderr

    asked = {"gateway": {"cors_origins": [PAGE]}}
    wrong = apply(str(changed(server.config, {"no_such": 1}, **asked)))
    assert wrong.returncode == 1
    assert "engine.options.no_such = 1: vLLM has no such argument" in wrong.stdout + wrong.stderr
    assert not allows_the_page(server), "nothing is replaced, the gateway neither"

    done = apply(str(changed(server.config, **asked)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert allows_the_page(server)

    back = apply("--back")
    assert back.returncode == 0, back.stdout + back.stderr
    assert not allows_the_page(server)
    assert replica_ids(get_json(f"{server.url}/admin/engines")) == replica_ids(before)


def replica_ids(engines: Any) -> list[str]:
    return sorted(each["replica"] for model in engines.values() for each in model["replicas"])
