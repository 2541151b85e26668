"""Compare autoscaling policies on a simulated fleet under a recorded trace.

    python scripts/simulate_autoscaling.py ../data/azure_code_1h.csv ../data/azure_conv_1h.csv

Replays each trace (CSV: t_s, input_tokens, output_tokens) against the policy of `serve_app/autoscaling`, Ray
Serve's default policy (its own code) at many targets, and fleets of a fixed size. All have the same bounds;
`scripts/autoscaling_simulation/` has the fleet. More replicas always make a shorter queue, so shares of late
first tokens are compared *at equal replica-hours*: the default's share comes from the best of its runs,
interpolated between two of them. Writes simulate_autoscaling.md, .json and one plot per trace.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaling_simulation.comparison import Bench, study
from autoscaling_simulation.replica import ReplicaModel
from autoscaling_simulation.report import markdown, plot, values
from autoscaling_simulation.trace import read_trace

from serve_app.autoscaling import ScalingRules


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+", help="CSV files: t_s, input_tokens, output_tokens")
    parser.add_argument("--start-s", type=float, default=60.0, help="from ordering a replica until it serves")
    parser.add_argument("--objective-s", type=float, default=1.0, help="for the time to the first token")
    parser.add_argument("--min", type=int, default=1)
    parser.add_argument("--max", type=int, default=16)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--prefill", type=float, default=8000.0, help="prompt tokens a second of a replica")
    parser.add_argument("--decode", type=float, default=30.0, help="tokens a second of a lone stream")
    parser.add_argument("--out", type=Path, default=Path("bench"))
    options = parser.parse_args(given)
    if min(options.start_s, options.objective_s, options.slots, options.prefill, options.decode) <= 0:
        parser.error("--start-s, --objective-s, --slots, --prefill, --decode: more than 0")
    if not 0 <= options.min <= options.max or options.max < 1:
        parser.error("--min, --max: expected 0 <= min <= max, and a max of 1 or more")
    return options


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    missing = [path for path in options.traces if not path.is_file()]
    if missing:
        print(f"simulate_autoscaling: skipped, no such file: {', '.join(map(str, missing))}")
        return
    model = ReplicaModel(options.slots, options.prefill, options.decode, start_s=options.start_s)
    rules = ScalingRules(
        min_replicas=options.min, max_replicas=options.max, ttft_objective_s=options.objective_s
    )
    options.out.mkdir(parents=True, exist_ok=True)
    studies = []
    for path in options.traces:
        try:
            trace = read_trace(path)
        except (OSError, ValueError) as error:
            sys.exit(f"simulate_autoscaling: {error}")
        found = study(path.stem, Bench(trace, model, rules), options.objective_s)
        plot(found, trace, options.objective_s, options.out / f"simulate_{path.stem}.png")
        studies.append(found)
    text = markdown(studies, model, rules, options.objective_s)
    (options.out / "simulate_autoscaling.md").write_text(text, encoding="utf-8")
    content = {
        "replica": asdict(model),
        "rules": asdict(rules),
        "studies": [values(each, options.objective_s) for each in studies],
    }
    (options.out / "simulate_autoscaling.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    print(text)
    print(f"Written to {options.out}/simulate_autoscaling.md and .json")


if __name__ == "__main__":
    main()
