"""Which of vLLM's parsers read a model's tool calls and its reasoning.

A model writes a tool call in the form that it was trained on, and its chat template shows that form: the
template has to write earlier calls into the prompt. So the marks in the template decide, not the model's
name; a fine-tune has the architecture of its base and a template of its own. The kind of model
(``model_type`` and ``architectures``) decides where several kinds share a mark, or where vLLM renders prompts
without a template. Where the template could not be read, kind and name give the usual parser of the family.

The tables follow vLLM 0.29's parsers and their documents
(https://docs.vllm.ai/en/latest/features/tool_calling/ and .../reasoning_outputs/). The first rule that
matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.settings import EngineSettings
from serve_app.settings.engine.parsers import AUTO, OFF, REASONING_OPTION, TOOL_OPTIONS

RENDERS_TOOLS = "tools"
"""A chat template that never names this variable leaves tools out of the prompt."""


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """What a model's files say about its chats. ``name``: hub id or folder; ``kinds``: ``model_type`` and
    ``architectures``; ``template``: all its chat templates, ``""`` if it has none, ``None`` if they could not
    be read."""

    name: str
    kinds: frozenset[str] = frozenset()
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A parser (``None``: none), and why."""

    parser: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Parsers:
    """The parsers of an engine. ``tools_are_given``, ``reasoning_is_given``: by the user's raw options, so
    that they are not set again."""

    tools: Choice
    reasoning: Choice
    tools_are_given: bool = False
    reasoning_is_given: bool = False

    def arguments(self) -> dict[str, Any]:
        """vLLM's arguments for what was chosen here."""
        arguments: dict[str, Any] = {}
        if self.tools.parser is not None and not self.tools_are_given:
            arguments |= {"enable_auto_tool_choice": True, "tool_call_parser": self.tools.parser}
        if self.reasoning.parser is not None and not self.reasoning_is_given:
            arguments[REASONING_OPTION] = self.reasoning.parser
        return arguments

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        both = (("tool calls", self.tools), ("reasoning", self.reasoning))
        return [f"{what}: {choice.parser or 'none'} ({choice.reason})" for what, choice in both]


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches a model of which all given conditions hold: one of ``kinds``, all ``marks`` and none of
    ``without`` in the chat template, ``name`` in its name. ``template_optional``: the template
    need not have been read."""

    parser: str
    kinds: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    name: str = ""
    template_optional: bool = False

    def matches(self, files: ChatFiles) -> bool:
        if self.kinds and not self.kinds & files.kinds:
            return False
        if self.name and re.search(self.name, files.name, re.IGNORECASE) is None:
            return False
        template = files.template or ""
        if any(mark not in template for mark in self.marks) or any(mark in template for mark in self.without):
            return False
        return self.template_optional or files.template is not None

    @property
    def reason(self) -> str:
        parts = []
        if self.marks:
            parts.append("its chat template has " + " and ".join(f"`{mark}`" for mark in self.marks))
        if self.kinds and not self.marks:
            parts.append("it is a " + " or ".join(sorted(self.kinds)))
        if self.name:
            parts.append("by its name")
        return ", ".join(parts)


def _kinds(*names: str) -> frozenset[str]:
    return frozenset(names)


GPT_OSS = _kinds("gpt_oss", "GptOssForCausalLM")
DEEPSEEK_32 = _kinds("deepseek_v32", "DeepseekV32ForCausalLM")
DEEPSEEK_4 = _kinds("deepseek_v4", "DeepseekV4ForCausalLM")
KIMI_3 = _kinds("kimi_k3", "KimiK3ForConditionalGeneration")
INKLING = _kinds("InklingForCausalLM", "InklingForConditionalGeneration")
MUSE = _kinds("MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration")
HY_3, HY_4 = _kinds("HYV3ForCausalLM"), _kinds("HYV4ForCausalLM")
HUNYUAN = _kinds("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM")
LING_3 = _kinds("BailingMoeV3ForCausalLM")
POOLSIDE = _kinds("laguna", "LagunaForCausalLM")
MISTRAL = _kinds(
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Ministral3ForCausalLM",
    "MistralLarge3ForCausalLM",
    "Mistral3ForConditionalGeneration",
    "PixtralForConditionalGeneration",
)
LLAMA_4 = _kinds("llama4", "Llama4ForCausalLM", "Llama4ForConditionalGeneration")
GEMMA_4 = _kinds(
    "gemma4", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"
)
GLM = _kinds("glm4_moe", "Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration")
GLM_47 = _kinds("glm4_moe_lite", "Glm4MoeLiteForCausalLM", "glm_moe_dsa", "GlmMoeDsaForCausalLM")
ERNIE = _kinds("ernie4_5", "ernie4_5_moe", "Ernie4_5ForCausalLM", "Ernie4_5_MoeForCausalLM")
MIMO = _kinds("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "MiMoV2OmniForCausalLM")
STEP_35 = _kinds("step3p5", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration")
STEP_3 = _kinds("Step3TextForCausalLM", "Step3VLForConditionalGeneration")
NEMOTRON = _kinds("nemotron_h", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM")
GRANITE_4 = _kinds("granitemoehybrid", "GraniteMoeHybridForCausalLM")
GRANITE = _kinds("granite", "GraniteForCausalLM", "granitemoe", "GraniteMoeForCausalLM")
COHERE_MOE = _kinds("Cohere2MoeForCausalLM")
QWEN_3 = _kinds(
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
)
QWEN = QWEN_3 | _kinds("qwen2", "qwen2_moe", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM")
PHI = _kinds("phi3", "Phi3ForCausalLM", "phi4mm", "Phi4MMForCausalLM")
OLMO_3 = _kinds("olmo3", "Olmo3ForCausalLM")
MINICPM = _kinds("minicpm", "MiniCPMForCausalLM", "llama", "LlamaForCausalLM")

TOOL_RULES = (
    # Models that vLLM renders by code of its own, so that their template says nothing.
    Rule("openai", kinds=GPT_OSS, template_optional=True),
    Rule("deepseek_v32", kinds=DEEPSEEK_32, template_optional=True),
    Rule("deepseek_v4", kinds=DEEPSEEK_4, template_optional=True),
    Rule("kimi_k3", kinds=KIMI_3, template_optional=True),
    Rule("inkling", kinds=INKLING, template_optional=True),
    Rule("muse_glimmer", kinds=MUSE, template_optional=True),
    # Fine-tunes that answer in a form of their own, whatever their base's template shows.
    Rule("xlam", name=r"xlam", template_optional=True),
    Rule("pythonic", name=r"toolace", template_optional=True),
    # Marks that one family alone has.
    Rule("mistral", marks=("[TOOL_CALLS]",)),
    Rule("apertus", marks=("<|tools_prefix|>",)),
    Rule("dots", marks=("<dots_function_call>",)),
    Rule("functiongemma", marks=("<start_function_call>",)),
    Rule("gemma4", marks=("<|tool_call>",)),
    Rule("gigachat3", marks=("function call<|role_sep|>",)),
    Rule("kimi_k2", marks=("<|tool_calls_section_begin|>",)),
    Rule("lfm2", marks=("<|tool_call_start|>",)),
    Rule("longcat", marks=("<longcat_tool_call>",)),
    Rule("minimax_m3", marks=("]<]minimax[>[",)),
    Rule("minimax_m2", marks=("<minimax:tool_call>",)),
    Rule("seed_oss", marks=("<seed:tool_call>",)),
    Rule("step3", marks=("<｜tool_calls_begin｜>",)),
    Rule("internlm", marks=("<|action_start|>", "<|plugin|>")),
    Rule("cohere_command4", kinds=COHERE_MOE, marks=("<|START_ACTION|>",)),
    Rule("cohere_command3", marks=("<|START_ACTION|>",)),
    Rule("deepseek_v3", marks=("<｜tool▁calls▁begin｜>", "```json")),
    Rule("deepseek_v31", marks=("<｜tool▁calls▁begin｜>",)),
    Rule("olmo3", kinds=OLMO_3, marks=("<function_calls>",)),
    Rule("llama4_pythonic", kinds=LLAMA_4, marks=(RENDERS_TOOLS,)),
    Rule("phi4_mini_json", kinds=PHI, marks=("<|tool|>",)),
    Rule("granite", kinds=GRANITE, marks=("<|tool_call|>",)),
    Rule("granite-20b-fc", marks=("<function_call>", RENDERS_TOOLS), name=r"granite"),
    # `<tool_calls>` and `<tool_call>` in many dialects.
    Rule("hy_v4", kinds=HY_4, marks=(RENDERS_TOOLS,)),
    Rule("hy_v3", kinds=HY_3, marks=(RENDERS_TOOLS,)),
    Rule("hunyuan_a13b", kinds=HUNYUAN, marks=("<tool_calls>",)),
    Rule("jamba", kinds=_kinds("jamba", "JambaForCausalLM"), marks=("<tool_calls>",)),
    Rule("ling3", kinds=LING_3, marks=("<tool_call>",)),
    Rule("poolside_v1", kinds=POOLSIDE, marks=("<tool_call>",)),
    Rule("glm47", kinds=GLM_47, marks=("<arg_key>",)),
    Rule("glm45", marks=("<arg_key>",)),
    Rule("mimo", kinds=MIMO, marks=("<tool_call>",)),
    Rule("step3p5", kinds=STEP_35, marks=("<tool_call>",)),
    Rule("minicpm5", kinds=MINICPM, marks=("<function name=", "<param name=")),
    Rule("qwen3_coder", marks=("<tool_call>", "<function=")),
    Rule("ernie45", kinds=ERNIE, marks=("<tool_call>",)),
    Rule("granite4", kinds=GRANITE_4, marks=("<tool_call>",)),
    Rule("hermes", marks=("<tool_call>",)),
    # Llama 3.1 and later say in words that a call is JSON.
    Rule("llama3_json", marks=("<|python_tag|>", RENDERS_TOOLS)),
    Rule("llama3_json", kinds=_kinds("llama", "mllama"), marks=("<|eot_id|>", '"parameters"', RENDERS_TOOLS)),
)

UNREAD_TOOL_RULES = (
    Rule("qwen3_coder", kinds=QWEN, name=r"qwen3.*coder", template_optional=True),
    Rule("hermes", kinds=QWEN, template_optional=True),
    Rule("llama3_json", kinds=_kinds("llama", "mllama"), name=r"llama-?3\.[1-3]", template_optional=True),
    Rule("llama4_pythonic", kinds=LLAMA_4, template_optional=True),
    Rule("mistral", kinds=MISTRAL, template_optional=True),
    Rule("gemma4", kinds=GEMMA_4, template_optional=True),
    Rule("glm47", kinds=GLM_47, template_optional=True),
    Rule("glm45", kinds=GLM, template_optional=True),
    Rule("granite4", kinds=GRANITE_4, template_optional=True),
    Rule("deepseek_v31", kinds=_kinds("DeepseekV3ForCausalLM"), name=r"v3\.1", template_optional=True),
    Rule("deepseek_v3", kinds=_kinds("DeepseekV3ForCausalLM"), name=r"deepseek", template_optional=True),
)
"""For a model whose template was not read: the usual parser of its family."""

REASONING_RULES = (
    Rule("openai_gptoss", kinds=GPT_OSS, template_optional=True),
    Rule("deepseek_v3", kinds=DEEPSEEK_32, template_optional=True),
    Rule("deepseek_v4", kinds=DEEPSEEK_4, template_optional=True),
    Rule("kimi_k3", kinds=KIMI_3, template_optional=True),
    Rule("inkling", kinds=INKLING, template_optional=True),
    Rule("muse_glimmer", kinds=MUSE, template_optional=True),
    Rule("holo2", name=r"holo2", template_optional=True),
    Rule("mistral", marks=("[THINK]",)),
    Rule("seed_oss", marks=("<seed:think>",)),
    Rule("granite", marks=("Here is my thought process",)),
    Rule("cohere_command4", kinds=COHERE_MOE, marks=("<|START_THINKING|>",)),
    Rule("cohere_command3", marks=("<|START_THINKING|>",)),
    Rule("gemma4", kinds=GEMMA_4, marks=("<|channel>",)),
    Rule("minimax_m3", marks=("]<]minimax[>[",)),
    Rule("minimax_m2", marks=("<minimax:tool_call>",)),
    Rule("kimi_k2", marks=("<|tool_calls_section_begin|>", "</think>")),
    Rule("hy_v4", kinds=HY_4, marks=("think",)),
    Rule("hy_v3", kinds=HY_3, marks=("think",)),
    Rule("hunyuan_a13b", kinds=HUNYUAN, marks=("</think>",)),
    Rule("ling3", kinds=LING_3, marks=("</think>",)),
    Rule("poolside_v1", kinds=POOLSIDE, marks=("</think>",)),
    Rule("glm47", kinds=GLM_47, marks=("</think>",)),
    Rule("glm45", kinds=GLM, marks=("</think>",)),
    Rule("mimo", kinds=MIMO, marks=("</think>",)),
    Rule("step3p5", kinds=STEP_35, marks=("</think>",)),
    Rule("step3", kinds=STEP_3, marks=("</think>",)),
    Rule("nemotron_v3", kinds=NEMOTRON, marks=("</think>", "enable_thinking")),
    Rule("olmo3", kinds=OLMO_3, marks=("<think>",)),
    Rule("ernie45", kinds=ERNIE, marks=("</think>",)),
    # DeepSeek 3.1 thinks if the request's `thinking` says so; R1, its distillates and QwQ always do.
    Rule("deepseek_v3", marks=("<｜Assistant｜>", "</think>", "thinking")),
    Rule("deepseek_r1", marks=("<｜Assistant｜>", "</think>")),
    Rule("qwen3", kinds=QWEN_3, marks=("</think>",)),
    Rule("deepseek_r1", kinds=_kinds("qwen2", "Qwen2ForCausalLM"), marks=("</think>",)),
)

UNREAD_REASONING_RULES = (
    Rule("qwen3", kinds=QWEN_3, name=r"^(?!.*(instruct|coder)).*qwen3", template_optional=True),
    Rule("deepseek_r1", name=r"deepseek-r1", template_optional=True),
)


def parsers_of(engine: EngineSettings, files: ChatFiles | None) -> Parsers:
    """The parsers of an engine. ``files``: its model's; ``None``: they could not be read at all."""
    options = engine.options
    tools_given = [name for name in TOOL_OPTIONS if name in options]
    reasoning_given = REASONING_OPTION in options
    return Parsers(
        _given(options, tools_given, "tool_call_parser")
        if tools_given
        else _chosen("tools", engine.tools, files, TOOL_RULES, UNREAD_TOOL_RULES),
        _given(options, [REASONING_OPTION], REASONING_OPTION)
        if reasoning_given
        else _chosen("reasoning", engine.reasoning, files, REASONING_RULES, UNREAD_REASONING_RULES),
        tools_are_given=bool(tools_given),
        reasoning_is_given=reasoning_given,
    )


def _given(options: Mapping[str, Any], names: Sequence[str], parser: str) -> Choice:
    return Choice(options.get(parser), f"set by engine.options.{names[0]}")


def _chosen(
    setting: str,
    named: str,
    files: ChatFiles | None,
    rules: Sequence[Rule],
    unread: Sequence[Rule],
) -> Choice:
    if named == OFF:
        return Choice(None, f"engine.{setting} is off")
    if named != AUTO:
        return Choice(named, f"set by engine.{setting}")
    if files is None:
        return Choice(None, f"the model's files could not be read; engine.{setting} names a parser")
    found = _first(rules, files, "")
    if found is None and files.template is None:
        found = _first(unread, files, "usual for its family; its chat template was not read: ")
    return found or Choice(None, _why_none(setting, files.template))


def _first(rules: Sequence[Rule], files: ChatFiles, before: str) -> Choice | None:
    rule = next((rule for rule in rules if rule.matches(files)), None)
    return None if rule is None else Choice(rule.parser, before + rule.reason)


def _why_none(setting: str, template: str | None) -> str:
    if template is None:
        return f"its chat template was not read; engine.{setting} names a parser"
    if setting == "reasoning":
        return "its chat template has no reasoning that a parser of vLLM knows"
    if not template:
        return "it has no chat template; engine.tools names a parser"
    if RENDERS_TOOLS not in template:
        return "its chat template leaves tools out; engine.tools names a parser"
    return "no parser of vLLM is known for its chat template; engine.tools names one"
