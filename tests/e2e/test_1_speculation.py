"""`config/local.yaml` speculates, guarded in the engine's own process; what it gains can be seen."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from support.graph import eventually
from support.server import MODEL, Server, get_json

REPEATS = "Repeat this ten times: the quick brown fox jumps over the lazy dog."


async def test_what_speculation_gains_is_exported_for_each_replica(
    client: openai.OpenAI, served: Server
) -> None:
    await asyncio.to_thread(
        client.chat.completions.create,
        model=MODEL,
        messages=[{"role": "user", "content": REPEATS}],
        temperature=0,
        max_tokens=256,
        extra_body={"ignore_eos": True},
        extra_headers={"cache-control": "no-store"},
    )
    shown: dict[str, Any] = {}

    async def accepted() -> bool:
        (member,) = (await asyncio.to_thread(get_json, f"{served.url}/admin/fleet"))[MODEL]
        shown.update(member["speculation"])
        return bool(shown["accepted_tokens"] > 0)

    assert await eventually(accepted, within_s=5), shown
    assert shown["draft_tokens"] >= shown["accepted_tokens"]
    assert 0 < shown["acceptance_rate"] <= 1
    assert 1 < shown["mean_accepted_length"] <= 5
