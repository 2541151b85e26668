"""Whole tasks of agents that people use: read a file, edit it, run a command, say that it is done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from client_endpoint import TENANT, endpoint, run_client
from support.client_tools import PATH, ClientTools
from support.gateway import Running

from serve_app.clients import CLIENTS, Target

ROOT = Path(__file__).parents[2]
TASK = "Change red to blue in note.txt, then count its bytes."
DONE = "The note says blue now."
PATCH = "*** Begin Patch\n*** Update File: note.txt\n@@\n-red\n+blue\n*** End Patch"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder in which the agent works."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "note.txt").write_text("red\n")
    return folder


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def connected(
    client: str, running: Running, program: Path, *arguments: str
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of ``promptly connect CLIENT --run``, told nothing but the endpoint."""
    command = [sys.executable, "-m", "deployments.cli", "connect", client, "--url", running.url]
    key = running.keys[TENANT]
    environment = {"PATH": f"{program.parent}:{PATH}", "PYTHONPATH": str(ROOT), "PROMPTLY_API_KEY": key}
    return [*command, "--run", *arguments], environment


async def test_claude_code_ends_a_task(client_tools: ClientTools, tmp_path: Path, work: Path) -> None:
    note = str(work / "note.txt")
    plan = [
        {"text": "I read it first.", "calls": [call("Read", file_path=note)]},
        {"calls": [call("Edit", file_path=note, old_string="red", new_string="blue")]},
        {"calls": [call("Bash", command="wc -c < note.txt > count.txt", description="Count the bytes")]},
        {"text": DONE},
    ]
    async with endpoint(plan, tmp_path / "store") as running:
        options = [
            "--permission-mode",
            "acceptEdits",
            "--allowedTools",
            "Bash(wc:*)",
            "--output-format",
            "json",
        ]
        command, environment = connected("claude", running, client_tools.claude, "-p", TASK, *options)
        status, output, errors = await run_client(command, tmp_path, environment, work)
        asked = sum(running.requests())
    assert status == 0, (output, errors)
    result = json.loads(output)
    assert (result["result"], result["is_error"], result["num_turns"]) == (DONE, False, 4), result
    assert (work / "note.txt").read_text() == "blue\n"
    assert (work / "count.txt").read_text().strip() == "5"
    assert asked >= 4
    assert result["usage"]["cache_read_input_tokens"] > 0


@pytest.mark.parametrize("by_file", [False, True], ids=["started by connect", "configured by its file"])
async def test_codex_ends_a_task(
    client_tools: ClientTools, tmp_path: Path, work: Path, by_file: bool
) -> None:
    """Configured by its file it asks for a WebSocket too, is refused it, and goes on over HTTP."""
    plan = [
        {"text": "I read it first.", "calls": [call("exec_command", cmd="cat note.txt")]},
        {"calls": [call("exec_command", cmd=f"apply_patch <<'E'\n{PATCH}\nE")]},
        {"calls": [call("exec_command", cmd="wc -c < note.txt > count.txt")]},
        {"text": DONE},
    ]
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
    async with endpoint(plan, tmp_path / "store") as running:
        if by_file:
            command = [str(client_tools.codex), "exec", *options, TASK]
            setup = CLIENTS["codex"].setup(Target(running.url, "sim", running.keys[TENANT]))
            environment = {**setup.environment}
            (config,) = setup.files.values()
            (tmp_path / ".codex").mkdir()
            (tmp_path / ".codex" / "config.toml").write_text(f"{config}supports_websockets = true\n")
        else:
            program = client_tools.codex
            command, environment = connected("codex", running, program, "exec", *options, TASK)
        status, output, errors = await run_client(command, tmp_path, environment, work)
    assert status == 0, (output, errors)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
    assert said[-1] == DONE
    assert (work / "note.txt").read_text() == "blue\n"
    assert (work / "count.txt").read_text().strip() == "5"
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["cached_input_tokens"] > 0


CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WHERE = "Which city is the capital of France?"


async def test_claude_code_ends_with_an_object_of_a_schema(
    client_tools: ClientTools, tmp_path: Path, work: Path
) -> None:
    plan = [{"calls": [call("StructuredOutput", city="Paris")]}, {"text": "Paris."}]
    options = ["--output-format", "json", "--json-schema", json.dumps(CITY)]
    async with endpoint(plan, tmp_path / "store") as running:
        command, environment = connected("claude", running, client_tools.claude, "-p", WHERE, *options)
        status, output, errors = await run_client(command, tmp_path, environment, work)
    assert status == 0, (output, errors)
    assert json.loads(output)["structured_output"] == {"city": "Paris"}, output


async def test_codex_ends_with_an_object_of_a_schema(
    client_tools: ClientTools, tmp_path: Path, work: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(CITY))
    options = ["--skip-git-repo-check", "--json", "--output-schema", str(schema)]
    async with endpoint([{"text": json.dumps({"city": "Paris"})}], tmp_path / "store") as running:
        command, environment = connected("codex", running, client_tools.codex, "exec", *options, WHERE)
        status, output, errors = await run_client(command, tmp_path, environment, work)
        bodies = [json.loads(each["body"]) for engine in running.engines for each in engine.stats().seen]
    assert status == 0, (output, errors)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
    assert json.loads(said[-1]) == {"city": "Paris"}
    formats = [body["response_format"] for body in bodies if "response_format" in body]
    assert [each["json_schema"]["schema"] for each in formats] == [CITY]
