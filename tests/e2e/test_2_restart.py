"""Stopping leaves nothing behind; a restart keeps the entries; the other two ways to start work too."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import openai
import pytest
from support.server import MODEL, Server, ServerSlot, serve_deploy, serve_run

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
