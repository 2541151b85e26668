"""Which parser reads a model's tool calls and reasoning: the tables, against vLLM's own registries."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from vllm.reasoning import _REASONING_PARSERS_TO_REGISTER as VLLM_REASONING
from vllm.tool_parsers import _TOOL_PARSERS_TO_REGISTER as VLLM_TOOLS

from serve_app.engines import ChatFiles, parsers_of
from serve_app.engines.parsers import (
    REASONING_RULES,
    TOOL_RULES,
    UNREAD_REASONING_RULES,
    UNREAD_TOOL_RULES,
)
from serve_app.settings import EngineSettings
from serve_app.settings.engine.parsers import REASONING_PARSERS, TOOL_PARSERS

TOOLS = "{% if tools %}"
HERMES = TOOLS + '<tool_call>{"name": ..., "arguments": ...}</tool_call>'
CODER = TOOLS + "<tool_call><function=x><parameter=y></parameter></function></tool_call>"
THINKS = "{{ content.split('</think>') }} enable_thinking <think>"
DEEPSEEK = TOOLS + "<｜Assistant｜><｜tool▁calls▁begin｜>"
LLAMA_3 = TOOLS + '<|python_tag|> {"name": function name, "parameters": ...} <|eot_id|>'

FAMILIES: dict[str, tuple[tuple[str, ...], str | None, str | None, str | None]] = {
    # name: kinds, template, tool parser, reasoning parser
    "Qwen/Qwen3-8B": (("qwen3",), HERMES + THINKS, "hermes", "qwen3"),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": (("qwen3_moe",), HERMES, "hermes", None),
    "Qwen/Qwen2.5-7B-Instruct": (("qwen2",), HERMES, "hermes", None),
    "Qwen/QwQ-32B": (("qwen2",), HERMES + "</think>", "hermes", "deepseek_r1"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": (("qwen3_moe",), CODER, "qwen3_coder", None),
    "NousResearch/Hermes-3-Llama-3.1-8B": (("llama",), HERMES + "<|eot_id|>", "hermes", None),
    "meta-llama/Llama-3.1-8B-Instruct": (("llama",), LLAMA_3, "llama3_json", None),
    "meta-llama/Llama-3.2-1B-Instruct": (
        ("llama",),
        TOOLS + '{"name": function name, "parameters": ...}<|eot_id|>',
        "llama3_json",
        None,
    ),
    "meta-llama/Llama-4-Scout": (("llama4",), TOOLS + "[func(x=1)]", "llama4_pythonic", None),
    "mistralai/Mistral-7B-Instruct-v0.3": (("mistral",), TOOLS + "[TOOL_CALLS] [", "mistral", None),
    "mistralai/Magistral-Small": (("mistral",), TOOLS + "[TOOL_CALLS] [THINK]", "mistral", "mistral"),
    "deepseek-ai/DeepSeek-V3": (("DeepseekV3ForCausalLM",), DEEPSEEK + "```json", "deepseek_v3", None),
    "deepseek-ai/DeepSeek-R1": (
        ("DeepseekV3ForCausalLM",),
        DEEPSEEK + "```json </think>",
        "deepseek_v3",
        "deepseek_r1",
    ),
    "deepseek-ai/DeepSeek-V3.1": (
        ("DeepseekV3ForCausalLM",),
        DEEPSEEK + "</think>{% if thinking %}",
        "deepseek_v31",
        "deepseek_v3",
    ),
    "deepseek-ai/DeepSeek-V3.2": (("DeepseekV32ForCausalLM",), "", "deepseek_v32", "deepseek_v3"),
    "openai/gpt-oss-20b": (("gpt_oss",), "<|channel|>", "openai", "openai_gptoss"),
    "moonshotai/Kimi-K2-Instruct": (
        ("DeepseekV3ForCausalLM",),
        TOOLS + "<|tool_calls_section_begin|>",
        "kimi_k2",
        None,
    ),
    "zai-org/GLM-4.5": (("glm4_moe",), TOOLS + "<tool_call><arg_key></think>", "glm45", "glm45"),
    "ibm-granite/granite-4.0-h-small": (("granitemoehybrid",), HERMES, "granite4", None),
    "ibm-granite/granite-3.3-8b-instruct": (
        ("granite",),
        TOOLS + "<|tool_call|> Here is my thought process",
        "granite",
        "granite",
    ),
    "ByteDance-Seed/Seed-OSS-36B": (
        ("seed_oss",),
        TOOLS + "<seed:tool_call><seed:think>",
        "seed_oss",
        "seed_oss",
    ),
    "MiniMaxAI/MiniMax-M2": (
        ("MiniMaxM2ForCausalLM",),
        TOOLS + "<minimax:tool_call></think>",
        "minimax_m2",
        "minimax_m2",
    ),
    "Salesforce/Llama-xLAM-2-8b-fc-r": (("llama",), LLAMA_3, "xlam", None),
    "HuggingFaceTB/SmolLM2-135M-Instruct": (("llama",), "<|im_start|>", None, None),
    "a base model": (("llama",), "", None, None),
    # Their template was not read.
    "Qwen/Qwen3-32B": (("qwen3",), None, "hermes", "qwen3"),
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": (("qwen3_moe",), None, "hermes", None),
    "meta-llama/Llama-3.3-70B-Instruct": (("llama",), None, "llama3_json", None),
    "somebody/llama": (("llama",), None, None, None),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_gets_its_parsers(name: str) -> None:
    kinds, template, tools, reasoning = FAMILIES[name]
    chosen = parsers_of(EngineSettings(), ChatFiles(name, frozenset(kinds), template))
    assert (chosen.tools.parser, chosen.reasoning.parser) == (tools, reasoning), chosen.lines()
    assert chosen.tools.reason
    assert chosen.reasoning.reason


def test_the_names_are_those_of_the_installed_vllm() -> None:
    assert set(TOOL_PARSERS) == set(VLLM_TOOLS)
    assert set(REASONING_PARSERS) == set(VLLM_REASONING)


NOT_CHOSEN = frozenset(
    {
        "qwen3_xml",  # the same parser as qwen3_coder
        "llama4_json",  # the same parser as llama3_json; Llama 4's own template is pythonic
        "minimax_m2_append_think",  # leaves the reasoning in the answer
    }
)
"""Names of vLLM's registries that no rule chooses, and why."""


def test_every_parser_of_vllm_has_a_rule_or_a_reason_to_have_none() -> None:
    tools = {rule.parser for rule in (*TOOL_RULES, *UNREAD_TOOL_RULES)}
    reasoning = {rule.parser for rule in (*REASONING_RULES, *UNREAD_REASONING_RULES)}
    assert tools <= set(TOOL_PARSERS)
    assert reasoning <= set(REASONING_PARSERS)
    assert (set(TOOL_PARSERS) | set(REASONING_PARSERS)) - tools - reasoning == NOT_CHOSEN


@pytest.mark.parametrize("rules", [TOOL_RULES, REASONING_RULES])
def test_every_rule_can_match_before_the_others(rules: Any) -> None:
    """A rule that another one before it covers would never decide."""
    for number, rule in enumerate(rules):
        for before in rules[:number]:
            covers = (
                set(before.marks) <= set(rule.marks)
                and (not before.kinds or (rule.kinds and rule.kinds <= before.kinds))
                and not before.name
                and not before.without
            )
            assert not covers, (before, rule)


QWEN = ChatFiles("Qwen/Qwen3-8B", frozenset({"qwen3"}), HERMES + THINKS)


def test_the_arguments_of_vllm_follow_the_choice() -> None:
    chosen = parsers_of(EngineSettings(), QWEN)
    assert chosen.arguments() == {
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
        "reasoning_parser": "qwen3",
    }
    assert parsers_of(EngineSettings(tools="off", reasoning="off"), QWEN).arguments() == {}
    named = parsers_of(EngineSettings(tools="pythonic", reasoning="step3"), QWEN)
    assert named.arguments()["tool_call_parser"] == "pythonic"
    assert named.arguments()["reasoning_parser"] == "step3"
    assert parsers_of(EngineSettings(tools="hermes"), None).arguments()["tool_call_parser"] == "hermes"


def test_raw_options_of_the_user_are_left_alone() -> None:
    options = {"enable_auto_tool_choice": True, "tool_call_parser": "mistral", "reasoning_parser": "olmo3"}
    chosen = parsers_of(EngineSettings(options=options), QWEN)
    assert chosen.arguments() == {}
    assert (chosen.tools.parser, chosen.reasoning.parser) == ("mistral", "olmo3")
    one = parsers_of(EngineSettings(options={"reasoning_parser": "olmo3"}), QWEN)
    assert one.arguments() == {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"tools": "hermez"}, "did you mean 'hermes'"),
        ({"reasoning": "qwen"}, "did you mean 'qwen3'"),
        ({"tools": "hermes", "options": {"tool_call_parser": "mistral"}}, "leave one of them out"),
        ({"tools": "off", "options": {"enable_auto_tool_choice": True}}, "leave one of them out"),
        ({"reasoning": "off", "options": {"reasoning_parser": "qwen3"}}, "leave one of them out"),
    ],
)
def test_a_wrong_name_is_refused(engine: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EngineSettings.model_validate(engine)


def test_a_plugin_may_bring_other_names() -> None:
    engine = EngineSettings(tools="mine", options={"tool_parser_plugin": "/mine.py"})
    assert parsers_of(engine, QWEN).arguments()["tool_call_parser"] == "mine"
