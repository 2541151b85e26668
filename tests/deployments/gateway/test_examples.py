"""The files of `examples/` run against a gateway: each as a user starts it, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from local_cache import local_cache
from support.gateway import Running, SimSettings, gateway

EXAMPLES = Path(__file__).parents[3] / "examples"
LIMIT_S = 120.0
QUICK = SimSettings(itl_ms=0, tokens=6, keep_bodies=1)
TURNS = [
    {"calls": [{"name": "read_file", "arguments": {"name": "note.txt"}}]},
    {"calls": [{"name": "calculate", "arguments": {"expression": "2 * (20 + 1)"}}]},
    {"calls": [{"name": "read_file", "arguments": {"name": "../secret.txt"}}]},
    {"text": "It is 42."},
]


@asynccontextmanager
async def started(
    name: str, *arguments: str, url: str, folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Ended when the block is."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        cwd=folder,
        env=os.environ | {"PROMPTLY_URL": url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(name: str, *arguments: str, running: Running, folder: Path) -> tuple[int | None, str, str]:
    """Its exit status and what it printed."""
    async with started(name, *arguments, url=running.url, folder=folder) as process:
        output, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
        return process.returncode, output.decode(), errors.decode()


@asynccontextmanager
async def served(folder: Path, *engines: SimSettings) -> AsyncIterator[Running]:
    """With an embedder of words, which is the last model of the list."""
    async with (
        local_cache(folder / "store") as cache,
        gateway(*(engines or [QUICK]), handles=cache.handles, **cache.args) as running,
    ):
        yield running


async def test_a_question_is_answered_from_the_nearest_passages(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the capital of france is paris\n\n" + "cats purr all day long " * 40)
    (tmp_path / "b.txt").write_text("bread is baked in an oven")
    asked = ["a.txt", "b.txt", "--question", "what is the capital of france"]
    async with served(tmp_path) as running:
        status, said, errors = await run("rag_chat.py", *asked, running=running, folder=tmp_path)
        sent = json.loads(running.engines[0].stats().seen[-1]["body"])
    assert (status, errors) == (0, "3 passages of 2 files\n")
    assert said.strip()
    system = sent["messages"][0]["content"]
    assert system.index("the capital of france is paris") < system.index("bread is baked")


async def test_a_job_goes_on_where_it_stopped(tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    lines = [{"id": str(number), "prompt": f"question {number}"} for number in range(12)]
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers.write_text(json.dumps({"id": "3", "answer": "known"}) + "\n")
    async with served(tmp_path) as running:
        for there in (1, 12):
            given = (str(questions), str(answers), "--parallel", "4")
            status, _, errors = await run("batch_job.py", *given, running=running, folder=tmp_path)
            assert (status, errors) == (0, f"{there} were there, 0 failed\n")
        assert running.requests() == [11]
    found = {each["id"]: each["answer"] for each in map(json.loads, answers.read_text().splitlines())}
    assert len(found) == 12
    assert found["3"] == "known"


async def test_an_agent_calls_its_tools_until_it_can_answer(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "note.txt").write_text("the number is 21")
    (tmp_path / "secret.txt").write_text("nobody may see this")
    async with served(tmp_path, SimSettings(itl_ms=0, plan=json.dumps(TURNS))) as running:
        status, said, errors = await run("agent.py", "twice the number?", running=running, folder=folder)
    assert (status, said) == (0, "It is 42.\n")
    assert "the number is 21" in errors
    assert "= '42'" in errors
    assert "is outside the folder" in errors
    assert "nobody" not in errors


async def test_a_service_finds_the_nearest_text(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as running,
        aiohttp.ClientSession() as http,
        started("embedding_service.py", "--port", "0", url=running.url, folder=tmp_path) as process,
    ):
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), LIMIT_S)
        url = line.decode().strip()
        texts = {"texts": ["paris is in france", "cats purr"]}
        async with http.post(f"{url}/texts", json=texts) as response:
            assert await response.json() == {"texts": 2}
        async with http.get(f"{url}/search?q=cats+purr+loudly") as response:
            assert (await response.json())["found"][0]["text"] == "cats purr"
        async with http.get(f"{url}/search") as response:
            assert response.status == 400
        async with http.post(f"{url}/texts", data=b'{"texts": [3]}') as response:
            assert response.status == 400


def test_every_example_is_on_the_page() -> None:
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f"examples/{path.name}" not in page] == []
