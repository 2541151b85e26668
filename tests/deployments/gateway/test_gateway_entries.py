"""Entries out of a cache and into one, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import warm_cache
from local_cache import LocalCache, local_cache
from support.gateway import MODEL, Running, SimSettings, gateway
from support.graph import ADMIN_TOKEN, eventually
from support.kept import OLDEST, OLDEST_UPSTREAM

from deployments.cli.main import main
from serve_app.cache.keys import cache_key
from serve_app.openai.requests import Endpoint, parse_generation
from serve_app.settings import parse_args
from serve_app.settings.fingerprint import fingerprint

QUICK = SimSettings(itl_ms=0, tokens=6)
ASKED, NEAR = "what is the capital of france", "the capital of france is what"
PAIRS = [
    {"question": ASKED, "answer": "Paris."},
    {"question": "who wrote hamlet", "answer": "Shakespeare.", "tags": ["books"], "ttl_s": 60},
]

LINES = {"content-type": "application/x-ndjson"}
LONG_CHARS = 8_000_000
"""More than the buffers of a connection hold."""


@pytest.fixture
def archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a backup that has the cache's entries only, made and restored as the administrator."""
    monkeypatch.setenv("PROMPTLY_ADMIN_TOKEN", ADMIN_TOKEN)
    monkeypatch.setenv("PROMPTLY_CACHE", str(folder / "no-files"))
    return str(folder / "all.promptly")


def cached(cache: LocalCache) -> Any:
    return gateway(QUICK, handles=cache.handles, **cache.args)


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


async def script(running: Running, what: str, file: Path, **options: Any) -> str:
    given = {"model": MODEL if what == "warm" else None, "request": {}, **options}
    return await warm_cache.run(argparse.Namespace(what=what, file=file, url=running.url, **given))


async def send(running: Running, *lines: Any) -> Any:
    body = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    data = BytesIO(body.encode())  # aiohttp warns of long bytes
    async with running.http.post("/admin/cache/entries", data=data, headers=LINES) as response:
        assert response.status == 200
        return await response.json()


async def test_answers_given_by_hand_answer_the_same_and_near_questions(folder: Path) -> None:
    async with local_cache(folder, race=False) as cache, cached(cache) as running:
        said = await script(running, "warm", written(folder / "faq.jsonl", *PAIRS))
        assert said == "2 of 2 entries stored"
        for text, tier in ((ASKED, "exact"), (NEAR, "semantic")):
            answer = await running.post(text)
            assert (answer.headers["x-cache"], answer.text) == (tier, "Paris.")
        found = await running.get("/admin/cache?tag=books")
        assert [entry["answer"] for entry in found["entries"]] == ["Shakespeare."]


async def test_an_import_says_how_far_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [{**PAIRS[0], "question": f"question {number}"} for number in range(70)]  # more than one request's
    async with local_cache(folder, race=False) as cache, cached(cache) as running:
        await script(running, "warm", written(folder / "faq.jsonl", *many))
    said = capsys.readouterr().err
    assert "100%" in said
    assert "70/70" in said


async def test_they_answer_only_requests_with_the_same_settings(folder: Path) -> None:
    async with local_cache(folder, race=False, sampled="all") as cache, cached(cache) as running:
        path = written(folder / "faq.jsonl", PAIRS[0])
        await script(running, "warm", path, request={"temperature": 0.5})
        assert (await running.post(ASKED)).headers["x-cache"] == "miss"
        assert (await running.post(ASKED, temperature=0.5)).headers["x-cache"] == "exact"


async def test_what_was_exported_answers_again_after_a_purge_and_an_import(folder: Path) -> None:
    exported = folder / "entries.jsonl"
    async with local_cache(folder, race=False) as cache, cached(cache) as running:
        await script(running, "warm", written(folder / "faq.jsonl", *PAIRS))
        fresh = (await running.post("something else entirely")).text

        async def stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"] == 3)

        assert await eventually(stored, within_s=5)
        assert await script(running, "export", exported) == f"3 entries written to {exported}"
        async with running.http.delete("/admin/cache?tenant=default") as response:
            assert (await response.json()) == {"deleted": 3}
        assert await script(running, "import", exported) == "3 of 3 entries stored"
        for text, said in ((NEAR, "Paris."), ("something else entirely", fresh)):
            answer = await running.post(text)
            assert answer.headers["x-cache"] in ("exact", "semantic")
            assert answer.text == said


async def test_lines_that_cannot_be_stored_are_named_and_the_others_are_stored(folder: Path) -> None:
    good = {"kind": "answer", "request": request(), "answer": "a"}
    async with local_cache(folder) as cache, cached(cache) as running:
        said = await send(
            running,
            "{",
            good,
            {"kind": "other"},
            {**good, "surprise": 1},
            {**good, "request": {**request(), "model": "nobody"}},
            {**good, "request": {**request(), "n": 2}},
            {**good, "request": {"model": MODEL}},
            {**good, "ttl_s": -1},
            {**good, "answer": "x" * 300_000},
            "",
            good,
        )
        assert said["stored"] == 2
        reasons = {refused["line"]: refused["reason"] for refused in said["refused"]}
        assert sorted(reasons) == [1, 3, 4, 5, 6, 7, 8, 9]
        for line, word in {
            4: "surprise",
            5: "nobody",
            6: "bypasses",
            7: "messages",
            8: "ttl_s",
            9: "longer",
        }.items():
            assert word in reasons[line], reasons[line]


async def test_an_entry_that_has_expired_is_not_imported(folder: Path) -> None:
    async with local_cache(folder) as cache, cached(cache) as running:
        await send(running, {"kind": "answer", "request": request(), "answer": "a"})
        async with running.http.get("/admin/cache/entries") as response:
            line = json.loads(await response.text())
        said = await send(running, {**line, "expires_at": 5.0})
        assert (said["stored"], said["refused"][0]["reason"]) == (0, "It has expired.")


async def test_a_cursor_that_is_none_is_a_400(folder: Path) -> None:
    async with (
        local_cache(folder) as cache,
        cached(cache) as running,
        running.http.get("/admin/cache/entries?after=x") as response,
    ):
        assert response.status == 400


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "an object with"),
        ('{"question": "q"}', "an object with"),
        ('{"question": "q", "answer": 3}', "an object with"),
        ('{"question": "q", "answer": "a", "tag": 1}', "unknown field 'tag'"),
    ],
)
def test_a_line_of_the_file_that_is_no_pair_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "faq.jsonl"
    path.write_text('{"question": "q", "answer": "a"}\n' + line)
    with pytest.raises(warm_cache.Failed, match=complaint) as raised:
        list(warm_cache.pairs_as_lines(path, "m", {}))
    assert f"{path}:2" in str(raised.value)


def request(text: str = ASKED) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}]}


async def test_an_answer_given_under_an_alias_answers_the_model(folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, model={"aliases": ["best"]}, **cache.args) as running,
    ):
        path = written(folder / "faq.jsonl", PAIRS[0])
        assert await script(running, "warm", path, model="best") == "1 of 1 entries stored"
        assert (await running.post(ASKED)).headers["x-cache"] == "exact"


async def test_lines_that_cannot_even_be_read_are_named_too(folder: Path) -> None:
    deep = b'{"kind": "answer", "request": {"a": ' + b"[" * 100_000
    async with local_cache(folder) as cache, cached(cache) as running:
        body = b'{"kind": "answer", "answer": "\xff\xfe"}\n' + deep
        async with running.http.post("/admin/cache/entries", data=body, headers=LINES) as response:
            assert response.status == 200
            said = await response.json()
        assert [refused["line"] for refused in said["refused"]] == [1, 2]


async def test_entries_come_back_from_a_backup_of_all_for_one_tenant(
    folder: Path, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = {"kind": "answer", "request": request(), "answer": "Paris.", "tags": ["books"]}
    theirs = {**mine, "answer": "London.", "tenant": "theirs"}
    async with local_cache(folder, race=False) as cache, cached(cache) as running:
        await send(running, mine, theirs)
        assert await asyncio.to_thread(main, ["backup", archive, "--endpoint", running.url]) == 0
        assert "cache: 2 entries" in capsys.readouterr().out
        for tenant in ("default", "theirs"):
            async with running.http.delete(f"/admin/cache?tenant={tenant}") as response:
                assert (await response.json()) == {"deleted": 1}
        again = ["restore", archive, "--tenant", "default", "--endpoint", running.url]
        for _ in range(2):
            assert await asyncio.to_thread(main, again) == 0
            assert capsys.readouterr().out == "cache: 1 entries stored\n"
        answer = await running.post(ASKED)
        assert (answer.headers["x-cache"], answer.text) == ("exact", "Paris.")
        assert (await running.get("/admin/cache"))["entries"] == 1
        assert await asyncio.to_thread(main, ["backup", archive, "--endpoint", "http://127.0.0.1:9"]) == 1
    assert "no answer" in capsys.readouterr().err


async def test_entries_of_the_oldest_backup_are_where_this_version_looks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROMPTLY_ADMIN_TOKEN", ADMIN_TOKEN)
    async with local_cache(folder, race=False) as cache, cached(cache) as running:
        assert await asyncio.to_thread(main, ["restore", str(OLDEST), "--endpoint", running.url]) == 0
        assert capsys.readouterr().out == "cache: 2 entries stored\n"
        found = (await running.get(f"/admin/cache?model={MODEL}"))["entries"]
        assert sorted(entry["answer"] for entry in found) == ["Paris.", "Shakespeare."]
    # The upstream's address, of which the key depends, has another port now.
    upstream = {"name": "e0", "url": OLDEST_UPSTREAM}
    settings = parse_args({"models": [{"id": MODEL, "upstreams": [upstream]}]}, source="oldest")
    for each in PAIRS:
        message = {"role": "user", "content": each["question"]}
        request = parse_generation(
            Endpoint.CHAT, json.dumps({"model": MODEL, "messages": [message]}).encode()
        )
        key = cache_key(request, "default", fingerprint(settings.models[0]))
        assert key is not None
        (kept,) = [entry for entry in found if entry["text"] == each["question"]]
        assert kept["id"] == str(key.entry_id)


async def test_a_restore_fits_a_smaller_bound_on_bodies_and_leaves_out_what_is_larger_alone(
    folder: Path, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {f"question {number}": f"Answer {number}." for number in range(6)} | {"long": "x" * LONG_CHARS}
    roomy = {"limits": {"max_body_bytes": 2 * LONG_CHARS}}
    async with (
        local_cache(folder, race=False, max_entry_bytes=2 * LONG_CHARS) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **roomy) as running,
    ):
        pairs = answers.items()
        await send(running, *({"kind": "answer", "request": request(text), "answer": a} for text, a in pairs))
        assert await asyncio.to_thread(main, ["backup", archive, "--endpoint", running.url]) == 0
        assert "cache: 7 entries" in capsys.readouterr().out
        async with running.http.delete("/admin/cache?tenant=default") as response:
            assert (await response.json()) == {"deleted": 7}
    small = {"limits": {"max_body_bytes": 4096}}
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **small) as running,
    ):
        assert await asyncio.to_thread(main, ["restore", archive, "--endpoint", running.url]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "cache: 6 entries stored"
        assert said[1].startswith("cache: 1 entries were not stored: ")
        assert (await running.get("/admin/cache"))["entries"] == 6
