"""Fine-tunes the cross-encoder: the embedder's own weights, reading both texts of a pair together.

The two texts are one input ("[CLS] one [SEP] two [SEP]"). The mean token vector of each, their difference
and their product go through a small head, so that training begins from what the embedder already knows of
two texts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from torch import nn

from cache_lab.pairs import LabelledPair

MAX_TOKENS = 80
"""Tokens of both texts and three special ones; the longer text is cut. 1 % of the written English pairs are
longer."""

BATCH = 32
MIXED_BY_LENGTH = 40
"""Batches that are shuffled together and sorted by length, so that little is padded."""

RATE = 1e-4
HEAD_RATE = 3e-4
WARM_UP = 0.06
"""The share of training in which the learning rate rises; then it falls to 0 in a straight line."""

Example = tuple[str, str, float]
"""Two texts, and 1 if one answer serves both."""

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Token ids, attention mask and token types, each [pairs, tokens]."""


class PairModel(nn.Module):
    """One logit for each pair: above 0, one answer rather serves both texts."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModel

        # The plain attention: the ONNX exporter cannot follow the fused one.
        self.encoder: Any = AutoModel.from_pretrained(folder, attn_implementation="eager")
        # Too few pairs to move the vectors of 30,000 tokens; and two thirds of the optimizer's work.
        self.encoder.embeddings.word_embeddings.weight.requires_grad_(False)
        width = self.encoder.config.hidden_size
        self.drop = nn.Dropout(0.1)
        self.head = nn.Sequential(nn.Linear(4 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        found = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        one, two = _mean(found, (1 - types) * mask), _mean(found, types * mask)
        joined = torch.cat([one, two, (one - two).abs(), one * two], dim=1)
        logits: torch.Tensor = self.head(self.drop(joined))[:, 0]
        return logits


def _mean(vectors: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    weights = chosen.unsqueeze(-1).to(vectors.dtype)
    return (vectors * weights).sum(1) / weights.sum(1).clamp(min=1.0)


@dataclass(frozen=True)
class Plan:
    """``epochs`` over the pairs; with ``minutes`` training ends then, and the learning rate follows the
    clock, not the count of steps: for a machine that is busy with other work (not reproducible)."""

    epochs: int = 3
    seed: int = 0
    threads: int = 2
    minutes: float | None = None
    check_every_s: float = 120.0


def open_tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS, strategy="longest_first")
    return tokenizer


def fit(
    folder: Path, pairs: Sequence[LabelledPair], plan: Plan, checkpoint: Path | None = None
) -> tuple[PairModel, int]:
    """Fine-tune the weights in ``folder``. Returns the model and how many examples it saw. With
    ``checkpoint`` the weights are kept there now and then."""
    torch.manual_seed(plan.seed)
    torch.set_num_threads(plan.threads)
    tokenizer, model = open_tokenizer(folder), PairModel(folder)
    optimizer = _optimizer(model)
    steps = plan.epochs * -(-len(pairs) // BATCH)
    started = checked = time.monotonic()
    seen, losses = 0, []
    model.train()
    for step, batch in enumerate(_batches(tokenizer, pairs, plan)):
        spent_s = time.monotonic() - started
        done = step / steps if plan.minutes is None else spent_s / (60 * plan.minutes)
        if done >= 1:
            break
        losses.append(_step(model, optimizer, batch, done))
        seen += len(batch)
        if time.monotonic() - checked > plan.check_every_s:
            checked = time.monotonic()
            print(f"{done:.0%}: {seen} pairs, {seen / spent_s:.0f}/s, loss {np.mean(losses):.3f}", flush=True)
            losses.clear()
            if checkpoint is not None:
                torch.save(model.state_dict(), checkpoint)
    if checkpoint is not None:
        torch.save(model.state_dict(), checkpoint)
    return model.eval(), seen


def logits(model: PairModel, tokenizer: Tokenizer, pairs: Sequence[LabelledPair]) -> NDArray[np.float32]:
    """The model's logit for each pair, in full precision."""
    encoded = tokenizer.encode_batch([(pair.candidate, pair.query) for pair in pairs])
    order = sorted(range(len(pairs)), key=lambda at: len(encoded[at].ids))
    found = np.zeros(len(pairs), np.float32)
    with torch.inference_mode():
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            found[rows] = model(*_padded([encoded[row] for row in rows])).float().numpy()
    return found


def _optimizer(model: PairModel) -> torch.optim.Optimizer:
    body = [weight for weight in model.encoder.parameters() if weight.requires_grad]
    groups = [
        {"params": body, "lr": RATE, "peak": RATE},
        {"params": model.head.parameters(), "lr": HEAD_RATE, "peak": HEAD_RATE},
    ]
    return torch.optim.AdamW(groups, weight_decay=0.01)


def _step(
    model: PairModel, optimizer: torch.optim.Optimizer, batch: Sequence[tuple[Encoding, float]], done: float
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * min(done / WARM_UP + 1e-3, 1 - done)
    wanted = torch.tensor([same for _, same in batch])
    # Products in 16 bits: three times as fast on a CPU that has instructions for them.
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*_padded([encoding for encoding, _ in batch]))
    loss = nn.functional.binary_cross_entropy_with_logits(found.float(), wanted)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _batches(
    tokenizer: Tokenizer, pairs: Sequence[LabelledPair], plan: Plan
) -> Iterator[list[tuple[Encoding, float]]]:
    """Batches without end, each of texts of similar length. A pair has either order in turn."""
    chance = random.Random(plan.seed)
    first = [chance.random() < 0.5 for _ in pairs]
    epoch = 0
    while True:
        examples: list[Example] = [
            (pair.query, pair.candidate, float(pair.same))
            if forward ^ bool(epoch % 2)
            else (pair.candidate, pair.query, float(pair.same))
            for pair, forward in zip(pairs, first, strict=True)
        ]
        chance.shuffle(examples)
        chunk = BATCH * MIXED_BY_LENGTH
        for begin in range(0, len(examples), chunk):
            some = examples[begin : begin + chunk]
            encoded = tokenizer.encode_batch([(one, two) for one, two, _ in some])
            rows = sorted(
                zip(encoded, (same for *_, same in some), strict=True), key=lambda row: len(row[0].ids)
            )
            batches = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]
            chance.shuffle(batches)
            yield from batches
        epoch += 1


def _padded(encodings: Sequence[Encoding]) -> Tensors:
    longest = max(len(encoding.ids) for encoding in encodings)
    found = torch.zeros((3, len(encodings), longest), dtype=torch.int64)
    for row, encoding in enumerate(encodings):
        for part, values in enumerate((encoding.ids, encoding.attention_mask, encoding.type_ids)):
            found[part, row, : len(values)] = torch.tensor(values)
    return found[0], found[1], found[2]
