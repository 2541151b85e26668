"""The commands of README.md and docs/ are run as they stand there, in a folder that has what they name, and
against a gateway with accounts, a cache, feedback and a scripted engine."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from local_cache import local_cache
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.collector import collecting
from support.documented import CANNOT, ELSEWHERE, HERE, ROOT, Command, commands, matches
from support.feedback import feedback_handle
from support.gateway import CHAT, MODEL, Running, SimSettings
from support.graph import ADMIN_TOKEN, eventually
from support.kept import Place

from deployments.platform.sealing import KEY_BYTES

QUICK = SimSettings(itl_ms=0, tokens=6)
KEY_ID = "0a1b2c3d4e5f"
REQUEST = "9f1c0000"
LIMIT_S = 120.0
NAMES = ["smollm2-135m-instruct", "smollm2-135m-int8", "my-model", "qwen3-8b", "qwen3-8b-fp8"]
SECOND_QUESTION = (
    "-H 'Content-Type: application/json' -H \"Authorization: Bearer $KEY\" -d "
    '\'{"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": '
    '"Can you tell me the capital of France?"}]}\''
)
PROMPTS = {
    "1.md": "---\nvariables: {name: null, tone: friendly}\n---\nAnswer {{name}} in a {{tone}} way.\n",
    "2.md": "---\nvariables: [name]\n---\nAnswer {{name}} at length.\n",
}
STATUSES: Mapping[str, set[int]] = {
    r"promptly doctor": {0, 1},  # the machine of a test may lack something
    r"promptly eval": {0, 1, 3},  # any verdict
}
SHIM = """#!{python}
import os, sys
sys.path.insert(0, {root!r})
from deployments.cli.main import main
given, endpoint = sys.argv[1:], os.environ["URL"]
if "--endpoint" not in given and given[0] in ("keys", "limits", "usage", "feedback", "capture"):
    given += ["--endpoint", endpoint]
if given[0] in ("eval", "connect"):
    given[1:1] = ["--url", endpoint] if given[0] == "eval" else []
    given += ["--url", endpoint] if given[0] == "connect" else []
sys.exit(main(given))
"""
"""`promptly` where the usual endpoint is that of the test."""


@dataclass(frozen=True)
class Workplace:
    folder: Path
    environment: Mapping[str, str]
    texts: Mapping[str, str]

    async def run(self, command: Command) -> None:
        text = command.text
        for old, new in self.texts.items():
            text = text.replace(old, new)
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            text,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        said = output.decode()
        allowed = next((each for begin, each in STATUSES.items() if re.match(begin, command.text)), {0})
        assert process.returncode in allowed, f"{command}\n{said}"
        if command.text.startswith("curl"):
            assert '"error"' not in said, f"{command}\n{said}"


def prepared(folder: Path) -> None:
    """What the commands name."""
    (folder / "bin").mkdir(parents=True)
    shim = folder / "bin" / "promptly"
    shim.write_text(SHIM.format(python=sys.executable, root=str(ROOT)))
    shim.chmod(0o755)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name in ("scripts", "examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "README.md").symlink_to(ROOT / "README.md")
    (folder / "bin" / "python").symlink_to(python)
    questions = ({"id": str(number), "prompt": f"question {number}"} for number in range(3))
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in questions))
    (folder / "config").mkdir()
    (folder / "config" / "golden").symlink_to(ROOT / "config" / "golden")
    (folder / "suite.yaml").write_text("cases:\n  - {id: a, prompt: Hello, expected: Hello}\n")
    (folder / "requests.csv").write_text("t_s,input_tokens,output_tokens\n0,900,200\n2,1500,100\n")
    for path in (ROOT / "config").iterdir():
        if path.is_file():
            (folder / "config" / path.name).write_bytes(path.read_bytes())
    prompts = folder / "prompts" / "support-reply"
    prompts.mkdir(parents=True)
    for name, text in PROMPTS.items():
        (prompts / name).write_text(text)
    (prompts.parent / "labels.yaml").write_text("labels: {support-reply: {production: '1'}}\n")
    for name in (".local/share/bash-completion/completions", ".config/fish/completions"):
        (folder / "home" / name).mkdir(parents=True)
    (folder / "env").write_text(f"export PROMPTLY_ADMIN_TOKEN={ADMIN_TOKEN}\n")


@asynccontextmanager
async def workplace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workplace]:
    prepared(folder)
    monkeypatch.setenv("CAPTURE_KEY", base64.b64encode(os.urandom(KEY_BYTES)).decode())
    kept = Place(folder / "kept")
    await kept.fill()
    (folder / "config.yaml").write_text(kept.config.read_text())
    shares = {"research": 1.0, "acme": 1.0}
    feedback = {"encryption_key_env": "CAPTURE_KEY", "capture": {"tenants": shares}}
    async with AsyncExitStack() as stack:
        collector = stack.enter_context(collecting())
        cache = await stack.enter_async_context(local_cache(folder / "cache-store", race=False))
        owner = await stack.enter_async_context(accounts_handle(folder / "cache" / "accounts"))
        said = await stack.enter_async_context(feedback_handle(folder / "feedback", **feedback))
        args = cache.args | {"embedder": {"id": "e5-small", "source": "words"}, "feedback": feedback}
        handles = {**cache.handles, "feedback": said}
        running = await stack.enter_async_context(
            with_accounts(owner, QUICK, model={"aliases": NAMES}, handles=handles, **args)
        )
        secret = await made_keys(owner.target.store)
        await asked(running, secret)
        head = await head_of(folder)
        yield Workplace(
            folder,
            {
                "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
                "HOME": str(folder / "home"),
                "PROMPTLY_CACHE": str(folder / "cache"),
                "HF_HUB_OFFLINE": "1",
                "PYTHONPATH": str(ROOT),
                "URL": running.url,
                "PROMPTLY_URL": running.url,
                "KEY": secret,
                "ADMIN_KEY": ADMIN_TOKEN,
                "PROMPTLY_ADMIN_TOKEN": ADMIN_TOKEN,
                "PROMPTLY_API_KEY": secret,
            },
            {
                '... "Can you tell me the capital of France?" ...': SECOND_QUESTION,
                "-H 'Content-Type: application/json' -d": '-H "Authorization: Bearer $KEY" '
                "-H 'Content-Type: application/json' -d",
                "http://127.0.0.1:8000": running.url,
                "http://127.0.0.1:4318": collector.url,
                "https://…/v1/traces": f"{collector.url}/v1/traces",
                "9f1c…": REQUEST,
                "/tmp/promptly-…/env": str(folder / "env"),
                "audit-000000120034.jsonl audit.jsonl --head 130200:5f0c…": head,
                'format=csv" -H "Authorization: Bearer $KEY"': 'format=csv" -H "Authorization: Bearer '
                '$ADMIN_KEY"',
            },
        )


async def made_keys(store: object) -> str:
    """The key whose id the pages name, of `acme`, and one of `research`, whose secret this returns."""
    secret, key = managed("research")
    named = managed("acme", user="ann@acme.example")[1]
    named = msgspec.structs.replace(named, record=msgspec.structs.replace(named.record, id=KEY_ID))
    for each in (key, named):
        await store.make_key(each)  # type: ignore[attr-defined]
    return secret


async def asked(running: Running, secret: str) -> None:
    """A request of `research` was answered, captured, and something may be said of it."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "what is the capital of france"}]}
    headers = bearer(secret)

    async def answered() -> bool:
        async with running.http.post(
            CHAT, json=body, headers=headers | {"x-request-id": REQUEST}
        ) as response:
            return response.status == 200

    async def captured() -> bool:
        async with running.http.get("/admin/captures?tenant=research") as response:
            return bool((await response.json())["captures"])

    async def known() -> bool:
        said = {"request_id": REQUEST, "score": 1}
        async with running.http.post("/v1/feedback", json=said, headers=headers) as response:
            return response.status == 200

    for ready in (answered, captured, known):
        assert await eventually(ready, within_s=30)


async def head_of(folder: Path) -> str:
    """The arguments of `audit verify` that the log here has."""
    log, head = folder / "kept" / "accounts" / "audit.jsonl", folder / "kept" / "accounts" / "audit.head"
    found = msgspec.json.decode(head.read_bytes())
    return f"{log} --head {found['seq']}:{found['hash']}"


RUN = [
    each
    for each in commands()
    if matches(HERE, each) and not matches(ELSEWHERE, each) and not matches(CANNOT, each)
]
BEFORE = {"docs/evaluation.md": ["promptly capture export --file yesterday.jsonl"]}
"""What another page told to do first."""


@pytest.mark.parametrize("page", sorted({command.page for command in RUN}))
async def test_the_commands_of_a_page_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workplace(tmp_path / "w", monkeypatch) as place:
        for text in BEFORE.get(page, []):
            await place.run(Command(page, text))
        for command in RUN:
            if command.page == page:
                await place.run(command)
