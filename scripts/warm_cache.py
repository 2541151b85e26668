"""Fill a running cache, or move its entries to another one.

    python scripts/warm_cache.py warm FAQ.jsonl --model MODEL     # {"question": …, "answer": …} on each line
    python scripts/warm_cache.py export ENTRIES.jsonl             # everything that is stored
    python scripts/warm_cache.py import ENTRIES.jsonl             # what `export` wrote, also elsewhere

An answer is only given to requests of its partition, which have the same system prompt, sampling and other
settings. `--request` gives these settings, such as `{"temperature": 0}`. The admin key is read from
PROMPTLY_ADMIN_KEY, or from PROMPTLY_ADMIN_TOKEN, which the file `env` of a start sets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from tqdm import tqdm

from deployments.cli.endpoint import CannotConnect, known_secret

ENTRIES = "/admin/cache/entries"
AS_LINES = {"content-type": "application/x-ndjson"}
LINES = 64
"""Lines per request."""

TIMEOUT_S = 300.0
PAIR_FIELDS = {"question", "answer", "tags", "ttl_s", "tenant", "request"}


class Failed(Exception):
    """The command failed; the message says why."""


def pairs_as_lines(path: Path, model: str, request: Mapping[str, Any]) -> Iterator[bytes]:
    """Each pair in the form that the server imports.

    Raises:
        Failed: a line is no pair; the message names file and line.
    """
    for number, line in enumerate(_lines(path), 1):
        yield json.dumps(_given(_pair(path, number, line), model, request)).encode()


def _pair(path: Path, number: int, line: bytes) -> dict[str, Any]:
    where = f"{path}:{number}"
    try:
        pair = json.loads(line)
    except ValueError as error:
        raise Failed(f"{where}: no JSON ({error})") from error
    if not isinstance(pair, dict) or not all(
        isinstance(pair.get(name), str) for name in ("question", "answer")
    ):
        raise Failed(f"{where}: an object with the texts `question` and `answer` is wanted")
    unknown = sorted(pair.keys() - PAIR_FIELDS)
    if unknown:
        raise Failed(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(sorted(PAIR_FIELDS))}")
    return pair


def _given(pair: Mapping[str, Any], model: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the line override those of all lines; earlier messages come before the question."""
    asked = {**request, **pair.get("request", {})}
    messages = [*asked.pop("messages", []), {"role": "user", "content": pair["question"]}]
    kept = {name: pair[name] for name in ("tags", "ttl_s", "tenant") if name in pair}
    body = {"model": model, **asked, "messages": messages}
    return {"kind": "answer", "request": body, "answer": pair["answer"], **kept}


def _lines(path: Path) -> list[bytes]:
    try:
        return [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in lines:
        batch.append(line)
        if len(batch) == LINES:
            yield batch
            batch = []
    if batch:
        yield batch


async def send(http: aiohttp.ClientSession, lines: list[bytes]) -> int:
    """Store lines; prints those that were refused, and returns how many were stored."""
    stored = done = 0
    with tqdm(total=len(lines), unit="entries", file=sys.stderr) as bar:
        for batch in batches(lines):
            async with http.post(ENTRIES, data=b"\n".join(batch), headers=AS_LINES) as response:
                answer = await _checked(response)
            stored += answer["stored"]
            for refused in answer["refused"]:
                print(f"line {done + refused['line']}: {refused['reason']}", file=sys.stderr)
            done += len(batch)
            bar.update(len(batch))
    return stored


async def fetch(http: aiohttp.ClientSession, path: Path) -> int:
    """Write all entries; returns how many."""
    after: str | None = None
    count = 0
    with path.open("wb") as file, tqdm(unit="entries", file=sys.stderr) as bar:
        while True:
            async with http.get(ENTRIES, params={} if after is None else {"after": after}) as response:
                if response.status != 200:
                    await _checked(response)
                body = await response.read()
                after = response.headers.get("x-next")
            file.write(body)
            count += body.count(b"\n")
            bar.update(body.count(b"\n"))
            if after is None:
                return count


async def _checked(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """Raises:
    Failed: the server refused.
    """
    text = await response.text()
    if response.status != 200:
        raise Failed(f"{response.url}: {response.status} {text[:300]}")
    answer: dict[str, Any] = json.loads(text)
    return answer


async def run(options: argparse.Namespace) -> str:
    """A sentence about the result."""
    key = known_secret()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(options.url, headers=headers, timeout=timeout) as http:
        if options.what == "export":
            return f"{await fetch(http, options.file)} entries written to {options.file}"
        if options.what == "import":
            lines = _lines(options.file)
        else:
            lines = list(pairs_as_lines(options.file, options.model, options.request))
        return f"{await send(http, lines)} of {len(lines)} entries stored"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("warm", "export", "import"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", help="for `warm`: the model whose answers they are")
    parser.add_argument("--request", type=_object, default={}, help="for `warm`: what else requests have")
    options = parser.parse_args()
    if (options.what == "warm") != (options.model is not None):
        parser.error("`warm` needs --model, and only `warm`")
    return options


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("a JSON object is wanted")
    return found


def main() -> None:
    try:
        print(asyncio.run(run(arguments())))
    except (Failed, CannotConnect, aiohttp.ClientError, OSError) as error:
        sys.exit(f"warm_cache: {error}")


if __name__ == "__main__":
    main()
