"""What the start says of long work: shares and time left, from bytes and from the lines that vLLM writes."""

from __future__ import annotations

import pytest

from deployments.launcher.progress import EngineStartLines, Rate, download_line, duration, weight_blobs

GIGABYTE = 10**9


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = Rate(0.0, 0)
    assert rate.per_s == 0.0
    for second in range(10, 130, 10):
        rate.look(float(second), min(second, 60) * 1000)  # nothing comes after a minute
    assert rate.per_s == 0.0
    rate.look(130.0, 120_000)
    assert rate.per_s == pytest.approx(60_000 / 60)


def test_a_download_has_its_share_and_the_time_left_where_the_size_is_known() -> None:
    line = download_line(4 * GIGABYTE, 16 * GIGABYTE, 100e6, 3 * GIGABYTE)
    assert line == "downloading weights: 4.0 of 16.0 GB (25 %), 100 MB/s, 2 min left"
    stuck = download_line(4 * GIGABYTE, 16 * GIGABYTE, 0.0, 0)
    assert stuck == "downloading weights: 4.0 of 16.0 GB (25 %), 0 MB/s"


@pytest.mark.parametrize("total", [None, 0, 2 * GIGABYTE])
def test_without_a_size_or_with_a_wrong_one_only_bytes_and_rate_are_said(total: int | None) -> None:
    line = download_line(3 * GIGABYTE, total, 50e6, 3 * GIGABYTE)
    assert line == "downloading weights: 3.0 GB so far, 50 MB/s"


@pytest.mark.parametrize(("seconds", "words"), [(5, "5 s"), (120, "2 min"), (7200, "2.0 h")])
def test_time_left_is_short(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def file(name: str, size: object, **more: object) -> dict[str, object]:
    return {"rfilename": name, "size": size, **more}


def test_the_files_that_vllm_loads_are_counted_by_their_names_in_the_cache() -> None:
    described = {
        "siblings": [
            file("config.json", 700, blobId="c"),
            file("model-1.safetensors", 10, lfs={"sha256": "s1"}),
            file("model-2.safetensors", 20, lfs={"sha256": "s2"}),
            file("original/consolidated.safetensors", 30, lfs={"sha256": "s3"}),
            file("pytorch_model.bin", 40, lfs={"sha256": "s4"}),
        ]
    }
    assert weight_blobs(described) == {"s1": 10, "s2": 20}
    assert weight_blobs({"siblings": [file("a.bin", 5, blobId="b")]}) == {"b": 5}


@pytest.mark.parametrize(
    "described",
    [{}, {"siblings": None}, {"siblings": [1]}, {"siblings": [file("a.bin", None, blobId="b")]}],
)
def test_a_description_without_sizes_gives_none(described: dict[str, object]) -> None:
    assert weight_blobs(described) == {}


CORE = "(EngineCore pid=7) INFO 11-23 07:30:10 "


def test_the_stages_of_a_start_follow_vllms_lines() -> None:
    start = EngineStartLines()
    said = []
    for line in (
        ":job_id:02000000",
        ":actor_name:ServeReplica:promptly:Engine:m",
        "INFO 11-23 07:29:57 [model.py:684] Resolved architecture: LlamaForCausalLM",
        CORE + "[core.py:123] Initializing a V1 LLM engine (v0.29.0) with config: model='x'",
        CORE + "[gpu_model_runner.py:1] Starting to load model x...",
        CORE + "[weight_utils.py:863] Filesystem type for checkpoints: EXT4. Checkpoint size: 16.00 GiB. A",
        "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]",
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:10<00:30, 10.0s/it]",
        CORE + "[default_loader.py:430] Loading weights took 40.34 seconds",
        "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:40<00:00, 10.0s/it]",
        CORE + "[gpu_model_runner.py:2] Warming up model for the compilation.",
        "Capturing CUDA graphs (PIECEWISE):  50%|#####     | 10/20 [00:02<00:02,  4.9it/s]",
        CORE + "[core.py:368] init engine (profile, create kv cache, warmup model) took 9.00 s",
        "INFO 2026-11-23 07:30:26,684 promptly_Engine:m 8vh8dfnu -- warm-up: prompt of 1024 tokens",
    ):
        start.read(line)
        if not said or said[-1] != start.shown:
            said.append(start.shown)
    assert start.engine == "Engine:m"
    assert said == [
        "",
        "its process runs, importing vLLM",
        "vLLM begins",
        "loading weights",
        "loading weights: 0 of 4 files (0 %), about 0.0 of 16.0 GiB",
        "loading weights: 1 of 4 files (25 %), about 4.0 of 16.0 GiB, 00:30 left",
        "weights loaded",
        "compiling",
        "capturing CUDA graphs: 10 of 20 graphs (50 %), 00:02 left",
        "KV cache allocated",
        "warm-up: prompt of 1024 tokens",
    ]
