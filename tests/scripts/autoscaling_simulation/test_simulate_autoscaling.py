"""The simulated fleet keeps time as a real one does, and policies meet it at equal cost."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import simulate_autoscaling
from autoscaling_simulation.comparison import Point, best_at
from autoscaling_simulation.fleet import simulate
from autoscaling_simulation.policies import ByObjective, Fixed, ServeDefault, View
from autoscaling_simulation.replica import ReplicaModel
from autoscaling_simulation.trace import Request, read_trace
from ray.serve.config import AutoscalingConfig

from serve_app.autoscaling import FleetLoad, ReplicaLoad, ScalingRules

MODEL = ReplicaModel(
    slots=2, prefill_tokens_per_s=1000.0, decode_tokens_per_s=10.0, slowdown=1.0, start_s=20.0
)


def on_off(seed: int, bursts: int = 12) -> list[Request]:
    """Bursts of some seconds, and as long gaps of nothing."""
    choose, at_s, trace = Random(seed), 0.0, []
    for _ in range(bursts):
        at_s += choose.uniform(20, 90)
        for _ in range(choose.randint(40, 120)):
            at_s += choose.expovariate(12)
            trace.append(Request(at_s, choose.randint(100, 3000), choose.randint(1, 40)))
    return trace


def test_a_lone_request_takes_the_time_of_its_prompt_and_of_its_tokens() -> None:
    outcome = simulate([Request(5.0, 500, 11)], Fixed(1), MODEL)
    assert outcome.ttft_s == pytest.approx([0.5])
    assert outcome.itl_s == pytest.approx([0.1])


def test_prompts_are_prefilled_one_after_the_other() -> None:
    outcome = simulate([Request(0.0, 1000, 1), Request(0.5, 1000, 1)], Fixed(1), MODEL)
    assert outcome.ttft_s == pytest.approx([1.0, 1.5])


def test_streams_share_the_steps() -> None:
    outcome = simulate([Request(0.0, 1, 101), Request(0.0, 1, 101)], Fixed(1), MODEL)
    assert outcome.itl_s == pytest.approx([0.2, 0.2], rel=0.01)


def test_a_prompt_slows_the_streams_that_run() -> None:
    trace = [Request(0.0, 1, 11), Request(0.1, 600, 1)]
    assert simulate(trace, Fixed(1), MODEL).itl_s[0] == pytest.approx(0.13, rel=0.02)


def test_who_finds_no_place_waits_in_line() -> None:
    outcome = simulate([Request(0.0, 1, 11)] * 3, Fixed(1), MODEL)
    assert outcome.ttft_s[2] == pytest.approx(2.0, rel=0.01)


def test_requests_go_where_the_fewest_prompts_wait() -> None:
    outcome = simulate([Request(0.0, 1000, 1)] * 2, Fixed(2), MODEL, initial=2)
    assert outcome.ttft_s == pytest.approx([1.0, 1.0])


def test_a_replica_that_is_ordered_serves_after_its_start_and_costs_from_the_order_on() -> None:
    trace = [Request(float(second), 1000, 1) for second in range(100)]
    outcome = simulate(trace, Fixed(3), MODEL)
    assert outcome.starts == 2
    assert outcome.ready[19] == 1
    assert outcome.ready[20] == 3
    assert outcome.replica_hours == pytest.approx(3 * 99 / 3600, rel=0.01)


def test_one_that_is_stopped_ends_what_it_has() -> None:
    trace = [Request(0.5, 1, 101), Request(0.5, 1, 101), Request(60.0, 1, 1)]
    outcome = simulate(trace, Fixed(1), MODEL, initial=2)
    assert outcome.stops == 1
    assert all(ttft_s < 1.0 for ttft_s in outcome.ttft_s)
    assert outcome.replica_hours < 2 * 15 / 3600 + 60 / 3600


@pytest.mark.parametrize("seed", range(3))
def test_every_request_is_answered_whatever_the_policy(seed: int) -> None:
    trace = on_off(seed)
    config = AutoscalingConfig(min_replicas=1, max_replicas=6, target_ongoing_requests=2)
    for scaler in (Fixed(1), ByObjective(ScalingRules(max_replicas=6)), ServeDefault(config)):
        outcome = simulate(trace, scaler, MODEL)
        assert min(outcome.ttft_s) > 0
        assert max(outcome.serving) <= 6
        assert max(outcome.serving) >= 1


@pytest.mark.parametrize("seed", range(3))
def test_the_policy_by_objective_beats_serves_own_at_equal_replica_hours(seed: int) -> None:
    trace, objective_s = on_off(seed, bursts=25), 2.0
    model = ReplicaModel(slots=16, prefill_tokens_per_s=8000.0, start_s=30.0)
    rules = ScalingRules(max_replicas=8, ttft_objective_s=objective_s)
    ours = simulate(trace, ByObjective(rules), model, objective_s=objective_s)
    points = []
    for target in (0.1, 0.3, 1.0, 3.0, 8.0):
        config = AutoscalingConfig(min_replicas=1, max_replicas=8, target_ongoing_requests=target)
        found = simulate(trace, ServeDefault(config), model)
        points.append(Point(f"{target:g}", found.replica_hours, found.late_share(objective_s)))
    assert ours.late_share(objective_s) < best_at(ours.replica_hours, points)


def serve_view(ongoing: float, ready: int, starting: int = 0) -> View:
    return View(FleetLoad(ready=(ReplicaLoad(),) * ready, starting=starting), ongoing)


def test_serves_own_policy_goes_to_the_target_after_its_delays() -> None:
    config = AutoscalingConfig(
        min_replicas=1, max_replicas=9, target_ongoing_requests=2, upscale_delay_s=30, downscale_delay_s=600
    )
    scaler = ServeDefault(config)
    up = [scaler.replicas(serve_view(10.0, 1), float(second)) for second in range(31)]
    assert up == [1] * 30 + [5]
    down = [scaler.replicas(serve_view(0.0, 5), 31.0 + second) for second in range(601)]
    assert down == [5] * 600 + [1]


def test_serves_own_policy_keeps_the_bounds() -> None:
    config = AutoscalingConfig(
        min_replicas=2, max_replicas=3, upscale_delay_s=0, downscale_delay_s=0, target_ongoing_requests=1
    )
    assert ServeDefault(config).replicas(serve_view(50.0, 2), 0.0) == 3
    assert ServeDefault(config).replicas(serve_view(0.0, 3), 0.0) == 2


def test_the_best_of_a_policy_at_a_cost_is_between_its_best_runs() -> None:
    points = [Point("a", 1.0, 0.5), Point("b", 2.0, 0.6), Point("c", 3.0, 0.1), Point("d", 4.0, 0.2)]
    costs = (0.5, 1.0, 2.0, 3.0, 9.0)
    assert [best_at(cost, points) for cost in costs] == pytest.approx([0.5, 0.5, 0.3, 0.1, 0.1])


def write_trace(path: Path, trace: list[Request]) -> Path:
    rows = [f"{request.at_s:.6f},{request.input_tokens},{request.output_tokens}" for request in trace]
    path.write_text("\n".join(["t_s,input_tokens,output_tokens", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = [Request(0.0, 4808, 10), Request(0.052, 3180, 8)]
    assert read_trace(write_trace(tmp_path / "trace.csv", trace)) == trace


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t_s,input_tokens,output_tokens\n",
        "time,in,out\n1,2,3\n",
        "t_s,input_tokens,output_tokens\n1,many,3\n",
        "t_s,input_tokens,output_tokens\n1,2\n",
        "t_s,input_tokens,output_tokens\n2,1,1\n1,1,1\n",
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.csv"):
        read_trace(path)


def test_a_trace_that_is_not_there_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate_autoscaling.main([str(tmp_path / "none.csv"), "--out", str(tmp_path)])
    assert "none.csv" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_report_has_every_policy_in_numbers_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / "bursts.csv", on_off(5, bursts=3))
    simulate_autoscaling.main([str(path), "--out", str(tmp_path / "out"), "--max", "3"])
    content = json.loads((tmp_path / "out" / "simulate_autoscaling.json").read_text(encoding="utf-8"))
    policies = {run["policy"] for run in content["studies"][0]["runs"]}
    assert len(policies) == 4
    assert {each["start_s"] for each in content["studies"][0]["comparisons"]} == {10.0, 60.0, 180.0}
    assert (tmp_path / "out" / "simulate_bursts.png").stat().st_size > 10_000
    assert all(policy in capsys.readouterr().out for policy in [*policies][:1])


def test_the_policy_hears_of_a_burst_as_late_as_in_a_cluster() -> None:
    scaler = ByObjective(ScalingRules(max_replicas=8, start_s=5.0), reported_after=2)
    burst = View(FleetLoad(ready=(ReplicaLoad(),), queued=200, queued_tokens=200_000), 0.0)
    first, second, third = (scaler.replicas(burst, float(tick)) for tick in range(3))
    assert (first, second) == (1, 1)
    assert third > 1
