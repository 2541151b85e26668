"""Which client has which features, and what became of them: the table of docs/clients.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

COLUMNS = {
    "text": "text",
    "stream": "stream",
    "tools": "tool calls",
    "structured": "structured output",
    "embeddings": "embeddings",
}
"""The heading of each column, by the feature that it shows."""

NO_SUCH = "–"
"""The client, or the API that it speaks, has no such feature."""

CHAT = "chat"
RESPONSES = "Responses"
MESSAGES = "Messages"


@dataclass(frozen=True)
class Library:
    """One client library. ``runtime``: the set of packages that it is in."""

    name: str
    script_name: str
    runtime: str
    speaks: str
    features: tuple[str, ...]
    explained: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By feature: a part of the error that it gets, and the reason for the docs."""


GENERATES = ("text", "stream", "tools", "structured")
ALL = (*GENERATES, "embeddings")

LANGCHAIN_TOKENS = (
    "it sends token ids of OpenAI's tokenizer, which mean other text to any other model: the error says so; "
    "`OpenAIEmbeddings(check_embedding_ctx_length=False)` sends texts, and works"
)

LIBRARIES = (
    Library("openai (Python)", "openai", "openai3", CHAT, ALL),
    Library("openai (Python), Responses", "openai-responses", "openai3", RESPONSES, GENERATES),
    Library("openai (Node)", "openai-node", "node", CHAT, ALL),
    Library("openai (Node), Responses", "openai-node-responses", "node", RESPONSES, GENERATES),
    Library("anthropic (Python)", "anthropic", "openai3", MESSAGES, (*GENERATES, "count_tokens")),
    Library("@anthropic-ai/sdk (Node)", "anthropic-node", "node", MESSAGES, GENERATES),
    Library("AI SDK, @ai-sdk/openai", "@ai-sdk/openai", "node", RESPONSES, ALL),
    Library("AI SDK, @ai-sdk/openai-compatible", "@ai-sdk/openai-compatible", "node", CHAT, ALL),
    Library(
        "LangChain, langchain-openai",
        "langchain-openai",
        "openai3",
        CHAT,
        (*ALL, "embeddings as texts"),
        {"embeddings": ("check_embedding_ctx_length=False", LANGCHAIN_TOKENS)},
    ),
    Library("AI SDK, @ai-sdk/anthropic", "@ai-sdk/anthropic", "node", MESSAGES, GENERATES),
    Library("LangChain, langchain-anthropic", "langchain-anthropic", "openai3", MESSAGES, GENERATES),
    Library(
        "instructor (mode TOOLS: its objects are tool calls)",
        "instructor",
        "openai2",
        CHAT,
        ("text", "stream", "structured"),
    ),
    Library("LlamaIndex", "llama-index", "openai2", CHAT, ALL),
    Library("LiteLLM as a client", "litellm", "openai2", CHAT, ALL),
    Library("pydantic-ai", "pydantic-ai", "openai3", CHAT, ALL),
    Library("openai-agents", "openai-agents", "openai3", RESPONSES, GENERATES),
)

AGENTS = (
    (
        "Claude Code",
        MESSAGES,
        ("test_claude_code_ends_a_task", "test_claude_code_ends_with_an_object_of_a_schema"),
    ),
    ("Codex", RESPONSES, ("test_codex_ends_a_task", "test_codex_ends_with_an_object_of_a_schema")),
)
"""Agents that end a whole task: name, what they speak, and their tests."""


def table() -> str:
    """The table of docs/clients.md."""
    head = ["client", "speaks", *COLUMNS.values()]
    rows = [head, ["---"] * len(head)]
    notes: list[str] = []
    for library in LIBRARIES:
        cells = [_cell(library, feature, notes) for feature in COLUMNS]
        rows.append([library.name, library.speaks, *cells])
    for name, speaks, _ in AGENTS:
        rows.append([f"{name}, a whole task", speaks, *["yes"] * 4, NO_SUCH])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    explained = [f"{number}. {note}." for number, note in enumerate(notes, start=1)]
    return "\n".join([*lines, "", *explained])


def _cell(library: Library, feature: str, notes: list[str]) -> str:
    if feature in library.explained:
        notes.append(f"{library.name}: {library.explained[feature][1]}")
        return f"see {len(notes)}"
    return "yes" if feature in library.features else NO_SUCH
