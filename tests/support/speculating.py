"""Small engines that speculate, run for real: as a script, in a process of its own.

    python -m support.speculating FOLDER JOBS    (JOBS: JSON, a list of :class:`Job`)

vLLM is imported once; each job is a fork of that process, so that no engine sees another's state. The last
line printed is a JSON object: by a job's name and an ask's, its :class:`Outcome`.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serve_app.speculation import StepTimes

ROOT = Path(__file__).parents[2]
VOCABULARY = 256
TIMEOUT_S = 240.0

TINY_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    # EAGLE-3 reads the hidden states of the layers 2, n / 2 and n - 3, which must be three.
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "dtype": "float32",
}
ONE_LAYER = TINY_LLAMA | {"num_hidden_layers": 1}
CONFIGS: dict[str, dict[str, Any]] = {
    "target": TINY_LLAMA,
    "other": ONE_LAYER,
    "eagle": ONE_LAYER,
    "eagle3": ONE_LAYER | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": VOCABULARY},
    "medusa": {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": TINY_LLAMA["hidden_size"],
        "vocab_size": VOCABULARY,
        "num_heads": 2,
        "num_hidden_layers": 1,
    },
    # A Qwen2 with a layer that predicts the token after the next.
    "mimo": TINY_LLAMA
    | {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1},
}
SEEDED = {"target": 7, "other": 8}
"""Models with weights on disk; the others' are vLLM's dummies, which are seeded as well."""


@dataclass(frozen=True)
class Ask:
    """Some answers at once. ``temperature`` above 0 samples, each answer with its own seed."""

    answers: int
    tokens: int
    temperature: float = 0.0


ASKS = {
    "greedy": Ask(3, 48),
    # A model with vLLM's made-up weights soon repeats itself, and says anything at all when it is sampled.
    "repeats": Ask(1, 400),
    "varies": Ask(3, 400, temperature=1.0),
}


@dataclass(frozen=True)
class Job:
    """One engine, and which of ``ASKS`` it is asked one after the other. ``source`` is one of ``CONFIGS``;
    ``dummy``: with weights that vLLM makes up. ``knee_tokens``: what the guard takes a step to cost
    (``StepCost``); ``None``: it measures, but on a busy machine it cannot see what a token of so small a
    model costs."""

    name: str
    speculation: dict[str, Any] | None = None
    source: str = "target"
    dummy: bool = False
    asks: tuple[str, ...] = ("greedy",)
    knee_tokens: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Of one ask. ``answers``: token ids. ``depth``: what the guard drafts next; ``None`` without one."""

    answers: list[list[int]]
    drafted: int
    accepted: int
    depth: int | None
    reason: str


@dataclass(slots=True)
class KnownTimes(StepTimes):
    """Steps whose cost is known instead of measured."""

    known: float = 0.0

    @property
    def knee_tokens(self) -> float:
        return self.known


def environment() -> dict[str, str]:
    """Of a process that runs small engines in itself."""
    return os.environ | {
        "PYTHONPATH": str(ROOT / "tests"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # threads of so small a model only wait for each other
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }


def run_jobs(folder: Path, jobs: Iterable[Job]) -> dict[str, dict[str, Outcome]]:
    """Outcomes by job and ask. Raises AssertionError, with the end of the output, if one failed."""
    tasks = json.dumps([asdict(job) for job in jobs])
    process = subprocess.Popen(
        [sys.executable, "-m", "support.speculating", str(folder), tasks],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its forks as well
        output, _ = process.communicate()
    assert process.returncode == 0, output[-6000:]
    return {
        name: {ask: Outcome(**outcome) for ask, outcome in outcomes.items()}
        for name, outcomes in json.loads(output.splitlines()[-1]).items()
    }


# ---- in that process -------------------------------------------------------------------------------------


def write_models(folder: Path) -> None:
    """Those of ``CONFIGS``."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    for name, config in CONFIGS.items():
        path = folder / name
        if name in SEEDED:
            torch.manual_seed(SEEDED[name])
            # Wide enough that what comes next depends on more than the last token.
            made = LlamaForCausalLM(LlamaConfig(**config, initializer_range=0.2))
            made.save_pretrained(path)
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))


def run_job(folder: Path, job: Job) -> dict[str, Outcome]:
    from vllm import LLM

    from deployments.engine.vllm.arguments import engine_arguments, without_servers
    from serve_app.model_store import ModelStore
    from serve_app.settings import EngineSettings, ModelSettings

    engine = EngineSettings(
        accelerator="cpu",
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=4,
        enable_prefix_caching=False,
        speculation=job.speculation,
        options={"skip_tokenizer_init": True} | ({"load_format": "dummy"} if job.dummy else {}),
    )
    source = str(folder / job.source)
    model = ModelSettings(id="tiny", source=source, engine=engine)
    arguments = without_servers(engine_arguments(model, ModelStore(folder)))
    llm = LLM(source, disable_log_stats=False, **arguments)
    if job.knee_tokens is not None:
        llm.llm_engine.engine_core.engine_core.scheduler.guard.times = KnownTimes(known=job.knee_tokens)
    return {name: ask(llm, ASKS[name]) for name in job.asks}


def ask(llm: Any, wanted: Ask) -> Outcome:
    from vllm import SamplingParams

    choose, before = random.Random(0), _counters(llm)
    prompts = [[choose.randrange(2, VOCABULARY) for _ in range(24)] for _ in range(wanted.answers)]
    sampling = [
        SamplingParams(
            temperature=wanted.temperature,
            seed=number,
            max_tokens=wanted.tokens,
            ignore_eos=True,
            detokenize=False,
        )
        for number in range(wanted.answers)
    ]
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
    after = _counters(llm)
    guard = getattr(llm.llm_engine.engine_core.engine_core.scheduler, "guard", None)
    return Outcome(
        answers=[list(answer.outputs[0].token_ids) for answer in answers],
        drafted=after[0] - before[0],
        accepted=after[1] - before[1],
        depth=None if guard is None else guard.depth,
        reason="" if guard is None else guard.reason,
    )


def _counters(llm: Any) -> tuple[int, int]:
    """Tokens drafted and accepted since the start."""
    values = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    return (
        int(values.get("vllm:spec_decode_num_draft_tokens", 0)),
        int(values.get("vllm:spec_decode_num_accepted_tokens", 0)),
    )


def _in_fork(folder: Path, job: Job, results: Any) -> None:
    results.send({name: asdict(outcome) for name, outcome in run_job(folder, job).items()})


def _import_for_all_forks() -> None:
    """What every engine imports: seconds each time."""
    for module in (
        "deployments.engine.vllm.guarded_scheduler",
        "vllm.entrypoints.llm",
        "vllm.model_executor.models.llama",
        "vllm.model_executor.models.transformers",
        "vllm.v1.engine.core",
        "vllm.v1.engine.llm_engine",
        "vllm.v1.executor.uniproc_executor",
        "vllm.v1.worker.cpu_worker",
    ):
        importlib.import_module(module)


def main() -> None:
    folder, jobs = Path(sys.argv[1]), [Job(**job) for job in json.loads(sys.argv[2])]
    _import_for_all_forks()
    outcomes = {}
    forks = multiprocessing.get_context("fork")
    for job in jobs:
        began = time.monotonic()
        receives, sends = forks.Pipe(duplex=False)
        process = forks.Process(target=_in_fork, args=(folder, job, sends))
        process.start()
        sends.close()
        try:
            outcomes[job.name] = receives.recv()
        except EOFError:
            sys.exit(f"{job.name} failed")
        process.join()
        print(f"{job.name}: {time.monotonic() - began:.1f} s", flush=True)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
