"""The shape of a model, read from its ``config.json``.

Names and defaults follow vLLM 0.29's ``transformers_utils/model_arch_config_convertor.py``: Llama, Qwen2/3,
Mistral, Gemma (``head_dim``), Mixtral and other mixtures of experts, DeepSeek's latent attention (MLA). A
multimodal model is read from its ``text_config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""The smallest value among these keys is the context (``derive_max_model_len_and_key``)."""

UNSCALED_ROPE = frozenset({"su", "longrope", "llama3", "default", "mrope", "dynamic_default"})
"""RoPE types whose ``max_position_embeddings`` is already the whole context."""

KV_HEAD_KEYS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
EXPERT_KEYS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
ACTIVE_EXPERT_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
)
LINEAR_LAYERS = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent"})


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention caches one vector of ``rank + rope_dim`` values per token and layer."""

    rank: int
    rope_dim: int
    plain_dim: int
    value_dim: int
    query_rank: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: ``active`` of ``count`` serve each token, ``shared_size`` serves every token."""

    count: int
    active: int
    size: int
    shared_size: int
    dense_layers: int


@dataclass(frozen=True, slots=True)
class CheckpointQuantization:
    """The contents of ``quantization_config``. ``block`` and ``group`` are the widths of a block or a group
    of weights with one scale; 0: none."""

    method: str
    bits: int
    block: int
    group: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes are in values, not bytes. 0: the config does not give it (see :attr:`is_known`)."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    mlp: int
    cached_layers: int
    context: int | None
    dtype: str
    is_tied: bool
    experts: Experts | None = None
    latent: Latent | None = None
    quantization: CheckpointQuantization | None = None
    sliding_window: int | None = None
    mtp_layers: int = 0
    draft_vocab: int | None = None
    target_hidden: int | None = None
    has_vision: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the config has what is needed to compute the KV cache and the speed."""
        return min(self.hidden, self.layers, self.heads, self.vocab, self.head_dim) > 0


def read_architecture(config: Config) -> Architecture:
    """The shape that a ``config.json`` describes; fields that it does not have stay 0 or ``None``."""
    text = _text_config(config)
    heads = _first(text, ("num_attention_heads", "n_head", "num_heads"))
    hidden = _first(text, ("hidden_size", "n_embd", "d_model"))
    layers = _first(text, ("num_hidden_layers", "n_layer", "num_layers"))
    latent = _latent(text)
    return Architecture(
        name=_name(config),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_first(text, KV_HEAD_KEYS) or heads,
        head_dim=latent.plain_dim + latent.rope_dim if latent else _head_dim(text, hidden, heads),
        vocab=_first(text, ("vocab_size",)),
        mlp=_first(text, ("intermediate_size", "ffn_dim", "n_inner")) or 4 * hidden,
        cached_layers=_cached_layers(text, layers),
        context=context_length(text),
        dtype=_dtype(config, text),
        is_tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        experts=_experts(text),
        latent=latent,
        quantization=_quantization(config) or _quantization(text),
        sliding_window=_sliding_window(text),
        mtp_layers=_first(text, ("num_nextn_predict_layers", "mtp_num_hidden_layers")),
        draft_vocab=_whole(text.get("draft_vocab_size")) or None,
        target_hidden=_whole(text.get("target_hidden_size")) or None,
        has_vision="vision_config" in config,
    )


def context_length(config: Config) -> int | None:
    """The longest context in tokens, RoPE scaling included, as vLLM's ``_get_and_verify_max_len`` derives it.

    YaRN multiplies ``original_max_position_embeddings``, and other scaled types multiply the length in the
    config; ``longrope``, ``llama3`` and Gemma 3 already give the scaled length. ``None``: the config has no
    length.
    """
    lengths = [found for key in CONTEXT_KEYS if (found := _whole(config.get(key)))]
    if not lengths:
        return None
    length = float(min(lengths))
    if "gemma3" in str(config.get("model_type")):
        return int(length)
    factor = 1.0
    for rope in _rope_parameters(config):
        kind = str(rope.get("rope_type", rope.get("type", "default")))
        if kind not in UNSCALED_ROPE:
            asked = rope.get("factor")
            factor = float(asked) if isinstance(asked, int | float) and asked > 0 else factor
            if kind == "yarn":
                length = _whole(rope.get("original_max_position_embeddings")) or length
    return int(length * factor)


def _rope_parameters(config: Config) -> list[Config]:
    """``rope_parameters`` (one, or one per layer type) or the older ``rope_scaling``."""
    found = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(found, Mapping):
        return []
    inner = [value for value in found.values() if isinstance(value, Mapping)]
    return inner or [found]


def _text_config(config: Config) -> Config:
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), Mapping):
            return config[key]  # type: ignore[no-any-return]
    thinker = config.get("thinker_config")
    return _text_config(thinker) if isinstance(thinker, Mapping) else config


def _name(config: Config) -> str:
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    return str(config.get("model_type", "unknown"))


def _first(config: Config, keys: tuple[str, ...]) -> int:
    """The first of these keys with a number; of a list, the largest (some configs give one per layer). A
    value that is negative or not an integer counts as missing."""
    for key in keys:
        value = config.get(key)
        largest = max(map(_whole, value), default=0) if isinstance(value, list) else _whole(value)
        if largest:
            return largest
    return 0


def _whole(value: object) -> int:
    """``value`` if it is an integer above 0; otherwise 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _head_dim(config: Config, hidden: int, heads: int) -> int:
    return _first(config, ("head_dim", "hidden_size_per_head")) or (hidden // heads if heads else 0)


def _cached_layers(config: Config, layers: int) -> int:
    """Layers whose KV cache grows with the text. Linear attention and state-space layers have none."""
    kinds = config.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != layers:
        return layers
    return sum(kind not in LINEAR_LAYERS for kind in kinds)


def _dtype(config: Config, text: Config) -> str:
    for each in (config, text):
        found = each.get("dtype") or each.get("torch_dtype")
        if found:
            return str(found).removeprefix("torch.")
    return "bfloat16"


def _sliding_window(config: Config) -> int | None:
    window = config.get("sliding_window")
    is_used = config.get("use_sliding_window", True)
    return (_whole(window) or None) if is_used else None


def _latent(config: Config) -> Latent | None:
    rank = _whole(config.get("kv_lora_rank"))
    if not rank:
        return None
    return Latent(
        rank,
        _first(config, ("qk_rope_head_dim",)),
        _first(config, ("qk_nope_head_dim",)),
        _first(config, ("v_head_dim",)),
        _first(config, ("q_lora_rank",)),
    )


def _experts(config: Config) -> Experts | None:
    count = _first(config, EXPERT_KEYS)
    if count <= 1:
        return None
    size = _first(config, ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size"))
    shared = _first(config, ("shared_expert_intermediate_size",))
    return Experts(
        count,
        min(_first(config, ACTIVE_EXPERT_KEYS) or 1, count),
        size,
        shared or _first(config, ("n_shared_experts", "num_shared_experts")) * size,
        _first(config, ("first_k_dense_replace",)),
    )


def _quantization(config: Config) -> CheckpointQuantization | None:
    found = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(found, Mapping):
        return None
    method = str(found.get("quant_method", "")).lower().replace("compressed_tensors", "compressed-tensors")
    block = found.get("weight_block_size")
    bits, group = _compressed_bits(found)
    return CheckpointQuantization(
        method,
        _first(found, ("bits", "w_bit")) or bits or (4 if "mxfp4" in method else 8),
        _whole(block[0]) if isinstance(block, list) and block else 0,
        _first(found, ("group_size", "q_group_size")) or group,
    )


def _compressed_bits(found: Config) -> tuple[int, int]:
    """Bits and group size of the first ``config_groups`` entry (compressed-tensors)."""
    groups = found.get("config_groups")
    if not isinstance(groups, Mapping):
        return 0, 0
    weights = next((each.get("weights") for each in groups.values() if isinstance(each, Mapping)), None)
    if not isinstance(weights, Mapping):
        return 0, 0
    return _whole(weights.get("num_bits")), _whole(weights.get("group_size"))
