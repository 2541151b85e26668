"""Answer questions from your own text files: embeddings find the passages, a chat answers from them.

    python examples/rag_chat.py docs/*.md --question "How do I make a key?"
    python examples/rag_chat.py notes/*.txt                     # asks for questions until Ctrl-D

It needs `pip install openai`, and a running endpoint with an embedder (config/local.yaml has one). The
endpoint is PROMPTLY_URL (default: http://127.0.0.1:8000), the key PROMPTLY_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from openai import OpenAI

PASSAGE_CHARS = 600
PASSAGES = 3
BATCH = 32
"""Texts in one request: with many tenants, each has a part of the embedder."""

CUT = {"truncate_prompt_tokens": -1}
"""A text that is longer than the embedder reads is not refused."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--question", help="ask this one only")
    parser.add_argument("--model", help="default: the first that the endpoint lists")
    parser.add_argument("--embedder", help="default: the last that the endpoint lists")
    options = parser.parse_args()

    url = os.environ.get("PROMPTLY_URL", "http://127.0.0.1:8000")
    client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("PROMPTLY_API_KEY", "none"))
    listed = [model.id for model in client.models.list()]
    model, embedder = options.model or listed[0], options.embedder or listed[-1]

    passages = [passage for path in options.files for passage in passages_of(path)]
    vectors = embedded(client, embedder, passages)
    print(f"{len(passages)} passages of {len(options.files)} files", file=sys.stderr)
    for question in [options.question] if options.question else sys.stdin:
        if question.strip():
            answer(client, model, question, nearest(client, embedder, question, passages, vectors))
    return 0


def passages_of(path: Path) -> list[str]:
    """Paragraphs, joined while they fit."""
    found: list[str] = []
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        if found and len(found[-1]) + len(paragraph) < PASSAGE_CHARS:
            found[-1] += f"\n\n{paragraph}"
        elif paragraph.strip():
            found.append(paragraph[:PASSAGE_CHARS])
    return [f"{path.name}: {passage}" for passage in found]


def embedded(client: OpenAI, embedder: str, texts: list[str]) -> list[list[float]]:
    found: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        answered = client.embeddings.create(model=embedder, input=batch, extra_body=CUT)
        found += [each.embedding for each in answered.data]
    return found


def nearest(
    client: OpenAI, embedder: str, question: str, passages: list[str], vectors: list[list[float]]
) -> list[str]:
    (asked,) = embedded(client, embedder, [question])
    ranked = sorted(zip(passages, vectors, strict=True), key=lambda each: -cosine(asked, each[1]))
    return [passage for passage, _ in ranked[:PASSAGES]]


def cosine(one: list[float], other: list[float]) -> float:
    """The endpoint's vectors have length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))


def answer(client: OpenAI, model: str, question: str, passages: list[str]) -> None:
    """Printed as it comes. The passages stand before the question, so that a follow-up finds them in the
    engine's prefix cache, and a question about other passages never shares a cached answer."""
    stream = client.chat.completions.create(
        model=model,
        stream=True,
        temperature=0,
        max_tokens=200,
        messages=[
            {"role": "system", "content": "Answer from these passages only:\n\n" + "\n\n".join(passages)},
            {"role": "user", "content": question.strip()},
        ],
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            print(chunk.choices[0].delta.content, end="", flush=True)
    print()


if __name__ == "__main__":
    sys.exit(main())
