"""A tiny engine in bfloat16, run for real: as a script, in a process of its own.

    python -m support.wide_engine FOLDER    (a model's)

The last line printed is a JSON object by worker class (vLLM's own, and this project's for eager engines): how
many layers multiply in float32, also after the weights were loaded again, and the log-probabilities of a
prompt's tokens.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

from support.speculating import VOCABULARY

PROMPT = [(7 * place) % (VOCABULARY - 2) + 2 for place in range(60)]


def wide_layers(worker: Any) -> int:
    made = [getattr(each, "cpu_linear", None) for each in worker.model_runner.model.modules()]
    return sum(getattr(product, "__module__", "") == "deployments.engine.cpu.wide" for product in made)


def said(folder: str, worker: str) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    llm = LLM(
        folder,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=4,
        skip_tokenizer_init=True,
        worker_cls=worker,
    )
    asked = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
    prompt: Any = {"prompt_token_ids": PROMPT}
    scores = llm.generate([prompt], asked, use_tqdm=False)[0].prompt_logprobs or []
    found = [each[token].logprob for token, each in zip(PROMPT, scores, strict=True) if each]
    engine: Any = llm.llm_engine
    layers = wide_layers(engine.model_executor.driver_worker.worker)
    llm.collective_rpc("reload_weights")
    reloaded = wide_layers(engine.model_executor.driver_worker.worker)
    del llm, engine
    gc.collect()
    return {"layers": layers, "reloaded": reloaded, "logprobs": found}


def main() -> None:
    from deployments.engine.cpu.wide import is_needed
    from deployments.engine.vllm.arguments import EAGER_WORKER

    folder = sys.argv[1]
    found = {"vllm": said(folder, "auto"), "ours": said(folder, EAGER_WORKER), "is_needed": is_needed()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
