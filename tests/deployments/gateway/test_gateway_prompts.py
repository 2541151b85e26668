"""Requests that name a prompt: what engines are sent, what is refused, and what follows a change of files."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from local_cache import local_cache
from prompt_files import REPLY, prompt_folder
from support.gateway import MODEL, Answered, Running, SimSettings, as_sent, chat, gateway
from support.graph import eventually
from support.meter import Meter
from support.responses import responses_handle

QUICK = SimSettings(itl_ms=0, tokens=3, keep_bodies=100)
ANN: dict[str, Any] = {"id": "reply", "variables": {"name": "Ann"}}
FILLED = {"role": "system", "content": "Answer Ann in a friendly way."}
HI = {"role": "user", "content": "hi"}
PATHS = {
    "/v1/chat/completions": {"model": MODEL, "messages": [HI]},
    "/v1/messages": {"model": MODEL, "messages": [HI], "max_tokens": 9},
    "/v1/responses": {"model": MODEL, "input": "hi", "store": False},
}


def sent(running: Running, at: int = -1) -> dict[str, Any]:
    return as_sent(running.engines[0].stats().seen[at]["body"])


async def asked(running: Running, prompt: Any, text: str = "hi", **headers: str) -> Answered:
    return await running.send(chat(text, prompt=prompt), headers=headers)


@pytest.mark.parametrize("path", PATHS)
async def test_a_prompt_stands_before_the_messages_of_each_api(path: str, tmp_path: Path) -> None:
    async with gateway(QUICK, **prompt_folder(tmp_path)) as running:
        answer = await running.send({**PATHS[path], "prompt": ANN}, path)
        assert answer.status == 200, answer.body
        assert answer.headers["x-prompt"] == "reply@1"
        fields = sent(running)
        assert fields["messages"] == [FILLED, HI]
        assert "prompt" not in fields


async def test_a_version_is_named_by_itself_or_by_a_label(tmp_path: Path) -> None:
    labels = 'labels: {reply: {production: "1", next: "2"}}'
    async with gateway(QUICK, **prompt_folder(tmp_path, REPLY | {"labels.yaml": labels})) as running:
        used = [
            (await asked(running, ANN | version)).headers["x-prompt"]
            for version in ({}, {"version": "2"}, {"version": "next"}, {"version": "production"})
        ]
        assert used == ["reply@1", "reply@2", "reply@2", "reply@1"]


async def test_a_value_never_becomes_a_template(tmp_path: Path) -> None:
    async with gateway(QUICK, **prompt_folder(tmp_path)) as running:
        await asked(running, {"id": "reply", "variables": {"name": "{{tone}}", "tone": "{{name}}"}})
        assert sent(running)["messages"][0]["content"] == "Answer {{tone}} in a {{name}} way."


@pytest.mark.parametrize(
    ("prompt", "param", "code"),
    [
        ({"id": "none"}, "prompt.id", "unknown_prompt"),
        (ANN | {"version": "7"}, "prompt.version", "unknown_prompt_version"),
        ({"id": "reply"}, "prompt.variables.name", "missing_prompt_variable"),
        (ANN | {"variables": {"name": "a", "x": "b"}}, "prompt.variables.x", "unknown_prompt_variable"),
        ({"id": "reply", "variables": {"name": "x" * 1001}}, "prompt.variables", "prompt_too_large"),
        ([1], "prompt", "invalid_value"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
async def test_a_wrong_prompt_is_refused_before_any_engine(
    path: str, prompt: Any, param: str, code: str, tmp_path: Path
) -> None:
    async with gateway(QUICK, **prompt_folder(tmp_path, max_chars=1000)) as running:
        answer = await running.send({**PATHS[path], "prompt": prompt}, path)
        assert answer.status == 400, answer.body
        if path != "/v1/messages":  # Anthropic's errors have neither
            assert (answer.error["param"], answer.error["code"]) == (param, code)
        assert param.rpartition(".")[2] in answer.error["message"] or "prompt" in answer.error["message"]
        assert running.requests() == [0]


async def test_without_a_folder_a_prompt_is_refused_and_a_text_is_no_prompt() -> None:
    async with gateway(QUICK) as running:
        answer = await asked(running, ANN)
        assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
        assert (await asked(running, "a text")).status == 200


async def test_tenants_see_only_their_prompts(tmp_path: Path) -> None:
    files = REPLY | {"reply/prompt.yaml": "tenants: [acme]"}
    async with gateway(QUICK, tenants=["acme", "other"], **prompt_folder(tmp_path, files)) as running:
        assert (await asked(running, ANN, **running.headers("acme"))).status == 200
        foreign = await asked(running, ANN, **running.headers("other"))
        missing = await asked(running, {"id": "nones"}, **running.headers("other"))
        assert (foreign.status, foreign.error["code"]) == (400, "unknown_prompt")
        assert foreign.error["message"].replace("reply", "") == missing.error["message"].replace("nones", "")


async def test_tenants_of_a_prompt_hold_also_where_the_folder_has_too_many_files(tmp_path: Path) -> None:
    files = REPLY | {"reply/prompt.yaml": "tenants: [acme]"}
    for most in range(1, 5):
        settings = prompt_folder(tmp_path, files, max_files=most)
        async with gateway(QUICK, tenants=["acme", "other"], **settings) as running:
            assert (await asked(running, ANN, **running.headers("other"))).status == 400
            status = (await asked(running, ANN, **running.headers("acme"))).status
            assert status == (200 if most == len(files) else 400)


async def test_a_changed_label_holds_without_a_restart(tmp_path: Path) -> None:
    async with gateway(QUICK, **prompt_folder(tmp_path)) as running:
        assert (await asked(running, ANN)).headers["x-prompt"] == "reply@1"
        (tmp_path / "labels.yaml").write_text('labels: {reply: {production: "2"}}')
        assert await eventually(lambda: _uses(running, "reply@2"), within_s=10)


async def _uses(running: Running, label: str) -> bool:
    return (await asked(running, ANN)).headers["x-prompt"] == label


async def test_broken_files_leave_what_was_known_and_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meter = Meter()

    async def told(number: float) -> bool:
        return meter.values.get("promptly_prompt_problems", {}).get(()) == number

    async with gateway(QUICK, meter=meter, **prompt_folder(tmp_path)) as running:
        assert await eventually(lambda: told(0), within_s=10)
        with caplog.at_level(logging.ERROR, logger="ray.serve"):
            (tmp_path / "labels.yaml").write_text("labels: [")
            (tmp_path / "reply" / "1.md").write_text("Answer {{nobody}}")
            assert await eventually(lambda: told(2), within_s=10)
        assert any("reply/1.md" in line for line in caplog.messages)
        assert await _uses(running, "reply@1")
        (tmp_path / "labels.yaml").write_text('labels: {reply: {production: "2"}}')
        (tmp_path / "reply" / "1.md").write_text("Fine.")
        assert await eventually(lambda: told(0), within_s=10)
        assert await _uses(running, "reply@2")


async def test_a_folder_that_goes_away_leaves_what_was_known(tmp_path: Path) -> None:
    meter, folder = Meter(), tmp_path / "prompts"
    folder.mkdir()

    async def told() -> bool:
        return meter.values.get("promptly_prompt_problems", {}).get(()) == 1

    async with gateway(QUICK, meter=meter, **prompt_folder(folder)) as running:
        assert await _uses(running, "reply@1")
        folder.rename(tmp_path / "away")
        assert await eventually(told, within_s=10)
        assert await _uses(running, "reply@1")


SAME_SYSTEM = {
    "ask/1.yaml": "variables: [q]\nmessages: [{role: user, content: 'please tell me {{q}}'}]",
    "ask/2.yaml": "variables: [q]\nmessages: [{role: user, content: 'tell me please {{q}}'}]",
}
"""Two versions whose texts differ in the last message alone, and have the same words: the same vector."""


async def cached(running: Running, prompts: Sequence[Any]) -> list[str]:
    """What ``x-cache`` says, once each answer is stored."""
    found = []
    for prompt in prompts:
        answer = await running.send({"model": MODEL, "prompt": prompt})
        assert answer.status == 200, answer.body
        found.append(answer.headers["x-cache"])
    return found


async def test_the_exact_tier_keeps_versions_apart(tmp_path: Path) -> None:
    files = {"ask/1.md": "---\nvariables: [q]\nrole: user\n---\n{{q}}", "ask/2.md": ""}
    files["ask/2.md"] = files["ask/1.md"]
    one, two = ({"id": "ask", "version": version, "variables": {"q": "why"}} for version in "12")
    async with (
        local_cache(tmp_path / "cache", race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **prompt_folder(tmp_path, files)) as running,
    ):
        assert await cached(running, [one, two, one, two]) == ["miss", "miss", "exact", "exact"]
        (tmp_path / "ask" / "2.md").write_text(files["ask/2.md"] + "\n")  # edited in place
        assert await eventually(lambda: _is(running, two, "miss"), within_s=10)


async def _is(running: Running, prompt: Any, status: str) -> bool:
    return await cached(running, [prompt]) == [status]


async def test_the_semantic_tier_keeps_versions_apart(tmp_path: Path) -> None:
    def version(number: int, text: str) -> dict[str, Any]:
        return {"id": "ask", "version": str(number), "variables": {"q": text}}

    async with (
        local_cache(tmp_path / "cache", race=False) as cache,
        gateway(
            QUICK, handles=cache.handles, **cache.args, **prompt_folder(tmp_path, SAME_SYSTEM)
        ) as running,
    ):
        assert await cached(running, [version(1, "how it works")]) == ["miss"]
        # Near texts of the same version do share: the test would see a hit across versions.
        assert await eventually(lambda: _is(running, version(1, "it works how"), "semantic"), within_s=10)
        assert await cached(running, [version(2, "how it works")]) == ["miss"]


async def test_a_stored_response_names_its_prompt_and_its_chain_goes_on_without_it(tmp_path: Path) -> None:
    async with (
        responses_handle(tmp_path / "store") as handle,
        gateway(QUICK, handles={"responses": handle}, **prompt_folder(tmp_path / "p")) as running,
    ):
        first = await running.send({"model": MODEL, "prompt": ANN, "input": "hi"}, "/v1/responses")
        assert first.json["prompt"] == ANN
        body = {"model": MODEL, "input": "go on", "previous_response_id": first.json["id"]}
        second = await running.send(body, "/v1/responses")
        assert second.status == 200, second.body
        assert [message["role"] for message in sent(running)["messages"]] == ["user", "assistant", "user"]
        alone = await running.send({"model": MODEL, "prompt": ANN}, "/v1/responses")
        assert alone.status == 200, alone.body
        assert sent(running)["messages"] == [FILLED]


async def test_a_background_response_with_a_wrong_prompt_is_refused_at_once(tmp_path: Path) -> None:
    async with (
        responses_handle(tmp_path / "store") as handle,
        gateway(QUICK, handles={"responses": handle}, **prompt_folder(tmp_path / "p")) as running,
    ):
        body = {"model": MODEL, "input": "hi", "background": True}
        refused = await running.send(body | {"prompt": {"id": "none"}}, "/v1/responses")
        assert refused.status == 400, refused.body
        taken = await running.send(body | {"prompt": ANN}, "/v1/responses")
        assert taken.status == 200, taken.body

        async def done() -> bool:
            found = await running.get(f"/v1/responses/{taken.json['id']}")
            return bool(found["status"] == "completed")

        assert await eventually(done, within_s=20)
        assert sent(running)["messages"][0] == FILLED


async def test_many_requests_during_changes_see_whole_versions(tmp_path: Path) -> None:
    async with gateway(QUICK, **prompt_folder(tmp_path)) as running:
        for number in range(4):
            (tmp_path / "labels.yaml").write_text(f'labels: {{reply: {{production: "{1 + number % 2}"}}}}')
            answers = await asyncio.gather(*(asked(running, ANN, f"{number} {n}") for n in range(8)))
            assert {answer.status for answer in answers} == {200}
        for seen in running.engines[0].stats().seen:
            fields = json.loads(seen["body"])
            assert fields["messages"][0]["content"] in (FILLED["content"], "Answer Ann at length.")
