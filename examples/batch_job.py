"""Ask every line of a file, and write the answers to another one; run it again to go on where it stopped.

    python examples/batch_job.py questions.jsonl answers.jsonl --parallel 16

Each line of the first file is `{"id": "1", "prompt": "…"}`. The job sends `x-priority: 9`, so that people who
wait go first, and tries again after what the endpoint's `Retry-After` says when it has no room. It needs `pip
install openai`; the endpoint is PROMPTLY_URL (default: http://127.0.0.1:8000), the key PROMPTLY_API_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAIError

LAST = "9"
TRIES = 10


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--model", help="default: the first that the endpoint lists")
    parser.add_argument("--parallel", type=int, default=8, help="requests at once (default: %(default)s)")
    options = parser.parse_args()

    url = os.environ.get("PROMPTLY_URL", "http://127.0.0.1:8000")
    key = os.environ.get("PROMPTLY_API_KEY", "none")
    # The client waits as `Retry-After` says, and only where that is a minute at most.
    headers = {"x-priority": LAST}
    async with AsyncOpenAI(
        base_url=f"{url}/v1", api_key=key, max_retries=TRIES, default_headers=headers
    ) as client:
        model = options.model or (await client.models.list()).data[0].id
        done = {each["id"] for each in lines(options.answers)} if options.answers.exists() else set()
        left = (each for each in lines(options.questions) if each["id"] not in done)
        with options.answers.open("a", encoding="utf-8") as file:
            workers = [work(client, model, left, file) for _ in range(options.parallel)]
            failed = sum(await asyncio.gather(*workers))
    print(f"{len(done)} were there, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


async def work(client: AsyncOpenAI, model: str, left: Iterator[dict[str, Any]], file: Any) -> int:
    """Take one question after the other; returns how many failed. A line is written whole."""
    failed = 0
    for each in left:
        messages: Any = [{"role": "user", "content": each["prompt"]}]
        try:
            answered = await client.chat.completions.create(model=model, messages=messages, temperature=0)
        except OpenAIError as error:
            print(f"{each['id']}: {error}", file=sys.stderr)
            failed += 1
            continue
        said = {"id": each["id"], "answer": answered.choices[0].message.content}
        file.write(json.dumps(said) + "\n")
        file.flush()
    return failed


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
