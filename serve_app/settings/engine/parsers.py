"""Which of vLLM's parsers read tool calls and reasoning out of an engine's text."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from pydantic import Field

from serve_app.settings.base import Frozen

AUTO = "auto"
OFF = "off"

TOOL_PARSERS = (
    "apertus",
    "cohere_command3",
    "cohere_command4",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
    "dots",
    "ernie45",
    "functiongemma",
    "gemma4",
    "gigachat3",
    "glm45",
    "glm47",
    "granite",
    "granite-20b-fc",
    "granite4",
    "hermes",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "inkling",
    "internlm",
    "jamba",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "ling3",
    "llama3_json",
    "llama4_json",
    "llama4_pythonic",
    "longcat",
    "mimo",
    "minicpm5",
    "minimax_m2",
    "minimax_m3",
    "mistral",
    "muse_glimmer",
    "olmo3",
    "openai",
    "phi4_mini_json",
    "poolside_v1",
    "pythonic",
    "qwen3_coder",
    "qwen3_xml",
    "seed_oss",
    "step3",
    "step3p5",
    "xlam",
)
"""The registry of vLLM 0.29 (``vllm.tool_parsers``)."""

REASONING_PARSERS = (
    "cohere_command3",
    "cohere_command4",
    "deepseek_r1",
    "deepseek_v3",
    "deepseek_v4",
    "ernie45",
    "gemma4",
    "glm45",
    "glm47",
    "granite",
    "holo2",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "inkling",
    "kimi_k2",
    "kimi_k3",
    "ling3",
    "mimo",
    "minimax_m2",
    "minimax_m2_append_think",
    "minimax_m3",
    "mistral",
    "muse_glimmer",
    "nemotron_v3",
    "olmo3",
    "openai_gptoss",
    "poolside_v1",
    "qwen3",
    "seed_oss",
    "step3",
    "step3p5",
)
"""The registry of vLLM 0.29 (``vllm.reasoning``)."""

TOOL_OPTIONS = ("enable_auto_tool_choice", "tool_call_parser")
REASONING_OPTION = "reasoning_parser"
PLUGIN_OPTIONS = {"tools": "tool_parser_plugin", "reasoning": "reasoning_parser_plugin"}
"""vLLM's options for files that register more parsers, by the setting that may then name one of them."""


class ParserSettings(Frozen):
    tools: str = Field(
        default=AUTO,
        description="vLLM's parser for the model's tool calls. `auto`: the one that fits the model's chat "
        "template (`promptly check` says which and why); `off`: none, and requests with tools are refused.",
    )
    reasoning: str = Field(
        default=AUTO,
        description="vLLM's parser that separates the model's reasoning from its answer. `auto`: the one "
        "that fits the model's chat template; `off`: none.",
    )


def wrong_parser(setting: str, name: str, known: Collection[str], options: dict[str, Any]) -> str | None:
    """The problem of a parser's name; ``None``: there is none. ``options`` are the engine's raw options."""
    raw = TOOL_OPTIONS if setting == "tools" else (REASONING_OPTION,)
    set_twice = [option for option in raw if option in options]
    if name != AUTO and set_twice:
        return f"`{setting}: {name}` and `options.{set_twice[0]}` name a parser: leave one of them out"
    if name in (AUTO, OFF, *known) or PLUGIN_OPTIONS[setting] in options:
        return None
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"`{setting}: {name}`: vLLM has no such parser; {hint}expected `auto`, `off`, or one of: " + (
        ", ".join(sorted(known))
    )
