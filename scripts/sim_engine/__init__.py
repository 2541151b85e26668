"""An OpenAI-compatible HTTP server with an engine's timing and none of its work, for tests and benchmarks.

    cd scripts && python -m sim_engine --port 0 --ready-file ready.json --itl-ms 20 --slots 64

It has slots, one prefill at a time, a prefix cache and an inter-token latency. Requests and answers have
vLLM's JSON, and it can fail in the ways that an engine fails (``Faults``). With ``--plan`` it plays a model
that uses tools (``plan.py``); without, it calls only a tool that the request forces.

Faults come from ``--faults die_after=5,times=1``, at run time as JSON to ``POST /sim/faults``, or for one
request in the header ``x-sim-fault: die_after=5``. ``GET /sim/stats`` shows counters, and ``POST /sim/die``
ends the process. Sampling parameters are accepted and change nothing; a parameter that would change the
answer's form is refused.
"""

from sim_engine.engine import SimEngine
from sim_engine.faults import NO_FAULTS, Faults
from sim_engine.metrics import Stats
from sim_engine.settings import SimSettings

__all__ = ["NO_FAULTS", "Faults", "SimEngine", "SimSettings", "Stats"]
