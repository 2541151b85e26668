"""Several models behind one gateway: own members and bounds, aliases, adapters, a model that is chosen."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from local_cache import local_cache
from scripted_member import Member, listening
from support.gateway import Answered, Running, chat, meanwhile, serving
from support.graph import ADMIN_TOKEN, AS_ADMIN, eventually

from deployments.gateway.placement.external import external_upstreams
from deployments.gateway.runtime import GatewayRuntime
from serve_app.fleet import EngineReport, EngineState
from serve_app.openai.continuation import TokenLimits
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import KeySources, make_key
from serve_app.settings import parse_args

LORA = {"adapters": {"poet": "/adapters/poet", "cook": "/adapters/cook"}}
SMALL: dict[str, Any] = {
    "id": "small",
    "source": "owner/small",
    "aliases": ["gpt-4o-mini", "default"],
    "engine": {"accelerator": "cpu", "lora": LORA},
}
LARGE: dict[str, Any] = {"id": "large", "source": "owner/large", "engine": {"accelerator": "cpu"}}
AUTO = {"id": "auto", "models": ["default", "large"], "tiers": {"best": ["large"]}}
MODELS: dict[str, Any] = {"models": [SMALL, LARGE], "auto_models": [AUTO]}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


@dataclass
class Engine:
    """A managed replica of one model: says who it was asked for, when ``goes`` is set. It stands for its
    deployment's handle too."""

    model: str
    context: int | None = None
    goes: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.member = Member(self._answer)
        self.goes.set()

    @property
    def asked_for(self) -> list[str]:
        return [seen.fields["model"] for seen in self.member.seen]

    def broadcast(self, _: str) -> Engine:
        return self

    async def _fetch_replica_results_async(self) -> list[Engine]:
        return [self]

    async def get_async(self) -> EngineReport:
        return EngineReport(
            replica_id=f"{self.model}-1",
            model=self.model,
            url=self.member.url,
            headers={},
            state=EngineState.READY,
            capacity=8,
            token_limits=TokenLimits(self.context),
            gives_token_ids=False,
        )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        fields = await request.json()
        await self.goes.wait()
        message = {"role": "assistant", "content": f"I am {fields['model']}"}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": fields["model"]}
        return web.json_response(head | {"choices": [choice], "usage": USAGE})


@asynccontextmanager
async def running_models(
    *engines: Engine,
    handles: Mapping[str, Any] | None = None,
    keys: KeySources | None = None,
    **args: Any,
) -> AsyncIterator[Running]:
    """A gateway in front of ``engines``; ``args`` are the application's settings."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(*(engine.member for engine in engines)))
        parsed = parse_args(MODELS | args, source="test")
        by_model: dict[str, Any] = {engine.model: engine for engine in engines}
        external = external_upstreams(parsed, {})
        runtime = GatewayRuntime(
            parsed,
            keys,
            by_model,
            external=external,
            admin_token=AdminToken.of(ADMIN_TOKEN) if keys is None else None,
            **(handles or {}),
        )
        stack.push_async_callback(runtime.close)
        url = await stack.enter_async_context(serving(runtime.app))
        http = await stack.enter_async_context(aiohttp.ClientSession(url, headers=AS_ADMIN))

        async def is_ready() -> bool:
            async with http.get("/ready") as response:
                return response.status == 200

        assert await eventually(is_ready, within_s=5)
        yield Running(http, (), url)


def pair(**contexts: int) -> tuple[Engine, Engine]:
    return Engine("small", contexts.get("small")), Engine("large", contexts.get("large"))


async def ask(
    running: Running, model: str, text: str = "who are you", headers: Any = None, **fields: Any
) -> Answered:
    return await running.send(chat(text, **({"model": model} | fields)), headers=headers)


# ---- several models ----


async def test_each_model_has_its_own_members_and_its_own_bound() -> None:
    small, large = pair()
    small.goes.clear()
    models = [SMALL | {"max_requests_per_replica": 1}, LARGE]
    async with running_models(small, large, models=models) as running, AsyncExitStack() as tasks:
        asked = [await tasks.enter_async_context(meanwhile(ask(running, "small"))) for _ in range(3)]
        await running.until_traffic(lambda traffic: traffic["queued"] == 2)
        others = await asyncio.gather(*(ask(running, "large") for _ in range(3)))
        assert {answer.text for answer in others} == {"I am large"}
        assert small.asked_for == ["small"]
        small.goes.set()
        assert {answer.text for answer in await asyncio.gather(*asked)} == {"I am small"}
        assert (len(small.asked_for), len(large.asked_for)) == (3, 3)


async def test_every_name_is_listed_with_what_it_stands_for() -> None:
    async with running_models(*pair(small=512)) as running:
        cards = {card["id"]: card for card in (await running.get("/v1/models"))["data"]}
        assert list(cards) == ["small", "poet", "cook", "gpt-4o-mini", "default", "large", "auto"]
        assert cards["default"] == await running.get("/v1/models/default")
        more = {"object", "created", "owned_by", "id", "type", "display_name", "created_at"}
        told = {name: {key: card[key] for key in card.keys() - more} for name, card in cards.items()}
        assert told == {
            "small": {"max_model_len": 512},
            "poet": {"parent": "small", "max_model_len": 512},
            "cook": {"parent": "small", "max_model_len": 512},
            "gpt-4o-mini": {"root": "small", "max_model_len": 512},
            "default": {"root": "small", "max_model_len": 512},
            "large": {},
            "auto": {},
        }
        unknown = await running.get("/v1/models/nope")
        assert "small, poet, cook, gpt-4o-mini, default, large, auto." in unknown["error"]["message"]


async def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    async with running_models(*pair()) as running:
        answer = await ask(running, "gpt-5")
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        assert "small, poet, cook, gpt-4o-mini, default, large, auto." in answer.error["message"]


# ---- aliases ----


async def test_an_alias_is_answered_in_its_models_name() -> None:
    small, large = pair()
    async with running_models(small, large) as running:
        answer = await ask(running, "gpt-4o-mini")
        assert answer.text == "I am small"
        assert (answer.json["model"], answer.headers["x-model"]) == ("small", "small")
        assert "x-model" not in (await ask(running, "small")).headers
        assert small.asked_for == ["small", "small"]


async def test_an_alias_works_on_relayed_paths() -> None:
    small, large = pair()
    async with running_models(small, large) as running:
        for path in ("/tokenize", "/v1/embeddings", "/detokenize"):
            assert (await running.send({"model": "default", "input": "x"}, path)).status == 200
        assert small.asked_for == ["small"] * 3
        refused = await running.send({"model": "auto", "prompt": "x"}, "/tokenize")
        assert (refused.status, refused.error["code"]) == (404, "model_not_found")


async def test_an_alias_of_an_external_model_is_asked_by_the_servers_own_name() -> None:
    vendor = Engine("theirs")
    async with listening(vendor.member):
        model = {"id": "ours", "aliases": ["best"], "upstreams": [vendor.member.upstream(model="theirs-v2")]}
        async with running_models(models=[model], auto_models=[]) as running:
            answers = [await ask(running, name) for name in ("best", "ours")]
            assert [answer.text for answer in answers] == ["I am theirs-v2"] * 2
            assert answers[0].headers["x-model"] == "ours"


async def test_an_alias_shares_the_cache_of_its_model(folder: Path) -> None:
    small, large = pair()
    async with (
        local_cache(folder, race=False) as cache,
        running_models(small, large, handles=cache.handles, **cache.args) as running,
    ):
        assert (await ask(running, "default")).headers["x-cache"] == "miss"

        async def is_known() -> bool:
            return (await ask(running, "small")).headers["x-cache"] == "exact"

        assert await eventually(is_known, within_s=5)
        again = await ask(running, "gpt-4o-mini")
        assert (again.headers["x-cache"], again.headers["x-model"]) == ("exact", "small")
        assert again.json["model"] == "small"


# ---- adapters ----


async def test_an_adapter_is_served_by_its_models_members() -> None:
    small, large = pair()
    async with running_models(small, large) as running:
        for name in ("poet", "cook", "small"):
            answer = await ask(running, name)
            assert (answer.text, answer.json["model"]) == (f"I am {name}", name)
            assert (answer.headers["x-served-by"], answer.headers.get("x-model")) == ("small-1", None)
        assert small.asked_for == ["poet", "cook", "small"]
        assert (await running.send({"model": "poet", "prompt": "x"}, "/tokenize")).status == 200
        assert small.asked_for[-1] == "poet"


async def test_adapters_count_as_their_models_load() -> None:
    small, large = pair()
    small.goes.clear()
    models = [SMALL | {"max_requests_per_replica": 1}, LARGE]
    async with running_models(small, large, models=models) as running, AsyncExitStack() as tasks:
        first = await tasks.enter_async_context(meanwhile(ask(running, "poet")))
        assert await eventually(lambda: _has_seen(small, 1), within_s=5)
        second = await tasks.enter_async_context(meanwhile(ask(running, "cook")))
        await running.until_traffic(lambda traffic: traffic["queued"] == 1)
        small.goes.set()
        assert ((await first).text, (await second).text) == ("I am poet", "I am cook")


async def _has_seen(engine: Engine, count: int) -> bool:
    return len(engine.member.seen) == count


async def test_adapters_share_no_answers_with_anybody(folder: Path) -> None:
    small, large = pair()
    names = ("small", "poet", "cook")
    async with (
        local_cache(folder, race=False) as cache,
        running_models(small, large, handles=cache.handles, **cache.args) as running,
    ):
        for name in names:
            answer = await ask(running, name)
            assert (answer.headers["x-cache"], answer.text) == ("miss", f"I am {name}")

        async def all_are_known() -> bool:
            answers = [await ask(running, name) for name in names]
            assert [answer.text for answer in answers] == [f"I am {name}" for name in names]
            return [answer.headers["x-cache"] for answer in answers] == ["exact"] * 3

        assert await eventually(all_are_known, within_s=5)


# ---- the cache of a model ----


async def test_a_model_may_ask_for_less_similarity(folder: Path) -> None:
    small, large = pair()
    models = [SMALL | {"cache_threshold": 0.2}, LARGE]
    asked, near = "one two three four", "one two three five"
    async with (
        local_cache(folder, race=False) as cache,
        running_models(small, large, models=models, handles=cache.handles, **cache.args) as running,
    ):
        for name in ("small", "large"):
            await ask(running, name, asked)

        async def are_stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"] == 2)

        assert await eventually(are_stored, within_s=5)
        assert (await ask(running, "small", near)).headers["x-cache"] == "semantic"
        assert (await ask(running, "large", near)).headers["x-cache"] == "miss"
        strict = {"x-cache-threshold": "0.99"}
        assert (await ask(running, "small", near, strict)).headers["x-cache"] == "miss"


async def test_entries_of_a_model_may_live_for_another_time(folder: Path) -> None:
    small, large = pair()
    models = [SMALL | {"cache_ttl_s": 1000.0}, LARGE]
    async with (
        local_cache(folder, race=False, rules=[{"ttl_s": 50, "prompt": "today"}]) as cache,
        running_models(small, large, models=models, handles=cache.handles, **cache.args) as running,
    ):
        for name in ("small", "poet", "large"):
            await ask(running, name, "hello")
        await ask(running, "small", "today")

        async def lives() -> set[tuple[str, str, int]]:
            entries = [
                entry
                for name in ("small", "poet", "large")
                for entry in (await running.get(f"/admin/cache?model={name}"))["entries"]
            ]
            return {
                (each["model"], each["text"], round(each["expires_at"] - each["created_at"]))
                for each in entries
            }

        async def all_are_there() -> bool:
            return len(await lives()) == 4

        assert await eventually(all_are_there, within_s=5)
        assert await lives() == {
            ("small", "hello", 1000),
            ("poet", "hello", 1000),
            ("large", "hello", 86_400),
            ("small", "today", 50),
        }


# ---- a model that is chosen ----


async def test_a_chosen_model_is_told_and_answers_in_its_own_name() -> None:
    small, large = pair(small=1_000)
    async with running_models(small, large) as running:
        short, long = await ask(running, "auto"), await ask(running, "auto", "word " * 2_000)
        assert [answer.headers["x-model"] for answer in (short, long)] == ["small", "large"]
        assert [answer.json["model"] for answer in (short, long)] == ["small", "large"]
        assert (small.asked_for, large.asked_for) == (["small"], ["large"])
        best = await ask(running, "auto", headers={"x-model-tier": "best"})
        assert best.headers["x-model"] == "large"
        refused = await ask(running, "auto", headers={"x-model-tier": "worst"})
        assert (refused.status, refused.error["param"]) == (400, "x-model-tier")


async def test_a_chosen_model_shares_its_own_cache(folder: Path) -> None:
    small, large = pair()
    async with (
        local_cache(folder, race=False) as cache,
        running_models(small, large, handles=cache.handles, **cache.args) as running,
    ):
        await ask(running, "small")

        async def is_known() -> bool:
            return (await ask(running, "auto")).headers["x-cache"] == "exact"

        assert await eventually(is_known, within_s=5)
        best = await ask(running, "auto", headers={"x-model-tier": "best"})
        assert (best.headers["x-cache"], best.text) == ("miss", "I am large")


async def test_a_users_rule_that_fails_is_the_gateways_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway_rule.py").write_text("def choose(request, candidates):\n    return 'nobody'\n")
    monkeypatch.syspath_prepend(tmp_path)
    auto = AUTO | {"rule": "gateway_rule:choose"}
    async with running_models(*pair(), auto_models=[auto]) as running:
        answer = await ask(running, "auto")
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert (await ask(running, "small")).status == 200
    sys.modules.pop("gateway_rule")


# ---- priority ----


async def test_an_engine_that_schedules_by_priority_is_told_it() -> None:
    small, large = pair()
    engine = SMALL["engine"] | {"scheduling_policy": "priority"}
    async with running_models(small, large, models=[SMALL | {"engine": engine}, LARGE]) as running:
        await ask(running, "small")
        await ask(running, "default", headers={"x-priority": "0"})
        await ask(running, "poet", headers={"x-priority": "9"})
        await ask(running, "small", headers={"x-priority": "1"}, priority=7)
        await ask(running, "large", headers={"x-priority": "0"})
        told = [seen.headers.get("x-vllm-priority") for seen in small.member.seen]
        assert told == ["5", "0", "9", "7"]  # the last one's body says it
        assert small.member.seen[-1].fields["priority"] == 7
        assert "x-vllm-priority" not in large.member.seen[0].headers


@pytest.mark.parametrize(("best", "told"), [(5, ["5", "5", "9", "5"]), (0, ["5", "0", "9", "0"])])
async def test_an_engine_is_told_no_better_priority_than_the_key_has(best: int, told: list[str]) -> None:
    small, large = pair()
    engine = SMALL["engine"] | {"scheduling_policy": "priority"}
    key, record = make_key("a", best_priority=best)
    bearer = {"authorization": f"Bearer {key}"}
    models = [SMALL | {"engine": engine}, LARGE]
    async with running_models(small, large, models=models, keys=KeySources(in_file=(record,))) as running:
        for asked in (None, "0", "9"):
            await ask(running, "small", headers=bearer | ({} if asked is None else {"x-priority": asked}))
        await ask(running, "small", headers=bearer, priority=-100)
    assert [seen.headers["x-vllm-priority"] for seen in small.member.seen] == told
    assert small.member.seen[-1].fields["priority"] == best


async def test_a_client_cannot_hand_an_engine_its_own_header() -> None:
    small, large = pair()
    async with running_models(small, large) as running:
        await ask(running, "small", headers={"x-vllm-priority": "-100"})
        assert "x-vllm-priority" not in small.member.seen[0].headers


async def test_a_server_that_is_not_ours_is_told_no_priority() -> None:
    own, vendor = Engine("small"), Engine("small")
    async with listening(vendor.member):
        model = {
            "id": "small",
            "source": "owner/small",
            "engine": {"accelerator": "cpu", "scheduling_policy": "priority"},
            "upstreams": [vendor.member.upstream()],
            "routing": "round_robin",
        }
        async with running_models(own, models=[model], auto_models=[]) as running:

            async def both_serve() -> bool:
                return (await running.get("/ready"))["ready_replicas"]["small"] == 2

            assert await eventually(both_serve, within_s=5)
            for _ in range(2):
                assert (await ask(running, "small", headers={"x-priority": "1"})).status == 200
            assert own.member.seen[0].headers["x-vllm-priority"] == "1"
            assert "x-vllm-priority" not in vendor.member.seen[0].headers
