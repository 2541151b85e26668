"""Quantise one model with llm-compressor and measure it before and after. ``quantize.py`` starts this in the
environment that ``quantize.py --install`` makes.

    cd scripts && ../.quantize-venv/bin/python -m quantization.worker JOB.json OUTCOME.json

Both measurements use transformers on one model object: after quantization llm-compressor rounds weights and
activations in every forward pass, as an engine with these weights would. On a CPU it computes in float32,
because most CPUs have no fast 16-bit arithmetic. Tensors that are not quantised keep their stored type.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from quantization.figures import perplexity, same_share
from quantization.job import Job, Outcome, read_job, write
from quantization.progress import Share, stage_line
from quantization.schemes import INT8, QuantizeError, group_size, scheme_named
from quantization.text import Sample

ANSWER_BATCH = 16
SMOOTHING = 0.8
"""SmoothQuant's migration strength in llm-compressor's W8A8 recipe."""

TEMPERATURE, TOP_K = 1.0, 50
"""Sampling that avoids samples which all look alike."""

HELD_WINDOW = 512
"""Tokens of the held-out text per forward pass; each token is predicted from those before it in its
window."""

WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.safetensors.index.json")
VERSIONS = ("llmcompressor", "compressed-tensors", "transformers", "torch")


@dataclass(frozen=True)
class Reading:
    """Perplexity of the held-out text, and the greedy token at each position."""

    perplexity: float
    greedy: list[int]


def main() -> None:
    job_file, outcome_file = map(Path, sys.argv[1:])
    job = read_job(job_file)
    try:
        write(outcome_file, quantise(job))
    except QuantizeError as error:
        sys.exit(str(error))


def quantise(job: Job) -> Outcome:
    """Writes ``job.out``. Raises: QuantizeError: the scheme does not fit the model."""
    torch.manual_seed(job.seed)
    say(stage_line("load", job.model))
    tokenizer = AutoTokenizer.from_pretrained(job.model)
    model, stored = load(job.model)
    say(f"{job.model}: {sum(each.numel() for each in model.parameters()) / 1e6:,.0f} M parameters")
    say(stage_line("samples", f"{len(job.samples)} of them" if job.samples else "none are needed"))
    samples = [] if not scheme_named(job.scheme).calibrates else tokenised(model, tokenizer, job)
    held = windows(tokenizer(job.held, add_special_tokens=False)["input_ids"])
    say(stage_line("measure", f"{sum(map(len, held)):,} held-out tokens"))
    before = read_held(model, held)
    say(stage_line("quantise", job.scheme))
    compress(model, job.scheme, samples, job.sample_tokens)
    say(stage_line("measure again", f"{sum(map(len, held)):,} held-out tokens"))
    after = read_held(model, held)
    say(stage_line("save", "compressing and writing the weights"))
    save(model, stored, Path(job.model), Path(job.out))
    return Outcome(
        perplexity_before=before.perplexity,
        perplexity_after=after.perplexity,
        same_next_token=same_share(before.greedy, after.greedy),
        held_tokens=len(before.greedy),
        tokens=sum(map(len, samples)),
        versions={name: version(name) for name in VERSIONS},
    )


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def say_share(share: Share, done: int) -> None:
    line = share.line(done, time.monotonic())
    if line is not None:
        say(f"  {line}")


def load(source: str) -> tuple[Any, torch.dtype]:
    """The model, ready to compute, and the type of its stored weights."""
    on_gpu = torch.cuda.is_available()
    model: Any = AutoModelForCausalLM.from_pretrained(
        source, dtype="auto", device_map="auto" if on_gpu else None
    )
    stored = model.dtype
    return (model if on_gpu else model.to(torch.float32)).eval(), stored


# ---- samples ---------------------------------------------------------------------------------------------


def tokenised(model: Any, tokenizer: Any, job: Job) -> list[list[int]]:
    """Token ids of every sample, at most ``sample_tokens`` each."""
    asked = [sample["question"] for sample in job.samples if "question" in sample]
    given = [_ids(tokenizer, sample) for sample in job.samples if "question" not in sample]
    if asked:
        say(f"the model answers {len(asked)} questions, {job.answer_tokens} tokens each ...")
        given += answered(model, tokenizer, asked, job.answer_tokens)
    return [ids[: job.sample_tokens] for ids in given if ids]


def _ids(tokenizer: Any, sample: Sample) -> list[int]:
    if "text" in sample:
        return list(tokenizer(sample["text"])["input_ids"])
    if not tokenizer.chat_template:
        raise QuantizeError('--calibration: "messages" need a model with a chat template; give "text"')
    return _chat(tokenizer, sample["messages"], answer_follows=False)


def _chat(tokenizer: Any, messages: Sequence[Any], *, answer_follows: bool) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer_follows)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def answered(model: Any, tokenizer: Any, asked: Sequence[str], tokens: int) -> list[list[int]]:
    """Questions with the model's answers, as chats if the model has a template."""
    if tokenizer.chat_template:
        turns = [[{"role": "user", "content": text}] for text in asked]
        prompts = [_chat(tokenizer, turn, answer_follows=True) for turn in turns]
    else:
        prompts = [list(tokenizer(f"Question: {text}\nAnswer:")["input_ids"]) for text in asked]
    found: list[list[int]] = []
    share = Share("answers", len(prompts), time.monotonic())
    for start in range(0, len(prompts), ANSWER_BATCH):
        found += _continued(model, tokenizer, prompts[start : start + ANSWER_BATCH], tokens)
        say_share(share, len(found))
    return found


def _continued(model: Any, tokenizer: Any, prompts: Sequence[list[int]], tokens: int) -> Iterator[list[int]]:
    """Each prompt with its sampled continuation, without padding."""
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
    width = max(map(len, prompts))
    ids = torch.tensor([[padding] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        made = model.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=tokens,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=TOP_K,  # top-p would sort the whole vocabulary, which takes as long as the step
            pad_token_id=padding,
        )
    for prompt, row in zip(prompts, made.tolist(), strict=True):
        yield prompt + _until_end(row[width:], tokenizer.eos_token_id)


def _until_end(answer: list[int], end: int | None) -> list[int]:
    return answer[: answer.index(end) + 1] if end in answer else answer


# ---- measuring -------------------------------------------------------------------------------------------


def windows(ids: Sequence[int]) -> list[list[int]]:
    """Pieces of at most ``HELD_WINDOW`` tokens, each of two or more."""
    pieces = [list(ids[start : start + HELD_WINDOW]) for start in range(0, len(ids), HELD_WINDOW)]
    return [piece for piece in pieces if len(piece) > 1]


def read_held(model: Any, pieces: Sequence[list[int]]) -> Reading:
    """Perplexity and greedy tokens of the held text."""
    losses, counts, greedy = [], [], []
    share = Share("held-out windows", len(pieces), time.monotonic())
    for number, piece in enumerate(pieces, 1):
        ids = torch.tensor([piece], device=model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[0, :-1].float()
        losses.append(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item())
        counts.append(len(piece) - 1)
        greedy += logits.argmax(dim=-1).tolist()
        say_share(share, number)
    return Reading(perplexity(losses, counts), greedy)


# ---- quantising ------------------------------------------------------------------------------------------


def compress(model: Any, scheme: str, samples: Sequence[list[int]], sample_tokens: int) -> None:
    """Run llm-compressor once over the samples."""
    from datasets import Dataset
    from llmcompressor import oneshot

    data = {}
    if samples:
        rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in samples]
        data = {
            "dataset": Dataset.from_list(rows),
            "num_calibration_samples": len(rows),
            "max_seq_length": sample_tokens,
        }
        say(f"calibrating with {len(rows)} samples, {sum(map(len, samples)):,} tokens ...")
    oneshot(model=model, recipe=recipe(model, scheme), **data)


def recipe(model: Any, name: str) -> list[Any]:
    """llm-compressor's modifiers. The head keeps its type, because its error would go straight into the
    logits."""
    from llmcompressor.modifiers.quantization import QuantizationModifier

    scheme = scheme_named(name)
    usual = {"targets": "Linear", "ignore": ["lm_head"]}
    if not scheme.calibrates:
        return [QuantizationModifier(scheme=scheme.preset, **usual)]
    if scheme is INT8:
        return _int8(scheme.preset, usual)
    return _awq(model, usual)


def _int8(preset: str, usual: dict[str, Any]) -> list[Any]:
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

    return [SmoothQuantModifier(smoothing_strength=SMOOTHING), GPTQModifier(scheme=preset, **usual)]


def _awq(model: Any, usual: dict[str, Any]) -> list[Any]:
    """llm-compressor's W4A16_ASYM has groups of 128; small models have layers that 128 does not divide."""
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier

    widths = {
        module.in_features
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    }
    weights = QuantizationArgs(
        num_bits=4, type="int", symmetric=False, strategy="group", group_size=group_size(widths)
    )
    groups = {"group_0": QuantizationScheme(targets=["Linear"], weights=weights)}
    return [
        AWQModifier(duo_scaling="both"),
        QuantizationModifier(config_groups=groups, ignore=usual["ignore"]),
    ]


def save(model: Any, stored: torch.dtype, source: Path, out: Path) -> None:
    """Compressed weights and config; tokenizer, chat template and the rest are the source's own files."""
    for module in model.modules():
        if not hasattr(module, "quantization_scheme"):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(stored)
    model.config.dtype = stored
    model.save_pretrained(out, save_compressed=True)
    skipped = {path.name for pattern in WEIGHT_FILES for path in source.glob(pattern)}
    for path in source.iterdir():
        if path.is_file() and path.name not in skipped and not (out / path.name).exists():
            shutil.copy2(path, out / path.name)


if __name__ == "__main__":
    main()
