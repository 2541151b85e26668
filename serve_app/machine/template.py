"""The text of a new config file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from serve_app.machine.choices import Choice

HEAD = """\
# Made by `promptly init` for {machine}.
#   promptly doctor {file}    what this machine lacks for it
#   promptly plan {file}      how many requests it holds, and how fast it is
#   promptly serve {file}     starts it, until Ctrl-C
"""

NETWORK = """\
  # This machine only, and no key is needed. For other machines: host: 0.0.0.0, and `auth: {accounts: true}`
  # under `args`; `promptly keys create` then makes keys while it runs.
"""

GPU_CONFIG = """\
proxy_location: HeadOnly

http_options:
{network}  host: 127.0.0.1
  port: 8000

applications:
  - name: promptly
    route_prefix: /
    import_path: serve_app.app:build
    args:
      models:
{plan}        - id: {id}
          # {download} to fetch from the model hub, once.
          source: {source}
          engine:
            accelerator: gpu
            # GPUs of one replica.
            tensor_parallel_size: {gpus}
{engine}            gpu_memory_utilization: 0.90
            enable_prefix_caching: true
          # {replicas} × {gpus} GPUs; {{min: 0, max: {replicas}}} would scale with the load.
          replicas: {replicas}
      # Answers to questions that were asked before, in the same or in other words.
      embedder:
        id: all-MiniLM-L6-v2
        source: sentence-transformers/all-MiniLM-L6-v2
        dtype: int8
        batch_wait_ms: 1
      cache:
        decision: strict
      gateway:
        num_cpus: 1
"""


def head(machine: str, file: str) -> str:
    return HEAD.format(machine=machine, file=file)


def gpu_config(choice: Choice, machine: str, file: str, plan: Sequence[str]) -> str:
    """``plan``: the plan's report of the choice."""
    return head(machine, file) + GPU_CONFIG.format(
        network=NETWORK,
        plan=indented(shown_plan(plan), "        "),
        id=choice.id,
        download=choice.download,
        source=choice.source,
        gpus=choice.gpus,
        engine=indented(choice.engine, "            "),
        replicas=choice.replicas,
    )


def cpu_config(shipped: str, machine: str, file: str, plan: Sequence[str]) -> str:
    """``shipped``: the text of config/local.yaml, whose leading comment is replaced."""
    lines = shipped.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        del lines[0]
    network = "http_options:\n"
    models = "      models:\n"
    text = "".join(lines)
    text = text.replace(network, network + NETWORK, 1)
    text = text.replace(models, models + indented(shown_plan(plan), "        "), 1)
    return head(machine, file) + text


def shown_plan(report: Sequence[str]) -> Iterable[str]:
    """Its figures as comments; notes and parsers change when the model is there."""
    yield "# What the plan expects of one replica:"
    for line in report[1:]:
        if not line.lstrip().startswith(("note:", "tool calls:", "reasoning:")):
            yield f"# {line}"


def indented(lines: Iterable[str], margin: str) -> str:
    return "".join(f"{margin}{line}\n" for line in lines)
