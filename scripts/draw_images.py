"""Draw the plots of README.md and docs/benchmarks.md from docs/images/figures.json.

    python scripts/draw_images.py
    python scripts/draw_images.py --ttft bench/layer.json --about "machine A, 22 Nov 2026"
    python scripts/draw_images.py --cache bench/eval_cache.json --about "machine B, 23 Nov 2026"

With --ttft (of `make bench`) or --cache (of `scripts/eval_cache.py`) the result replaces the stored figures
first; --about says where and when it was measured.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import COLOURS

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FIGURES = "figures.json"
TTFT, CACHE = "ttft_peers", "cache_recall"
TRAFFIC = "traffic 30/65/5"
CURVES = {"score_curve": "Promptly: guards and verifier", "cosine_curve": "a cosine threshold alone"}
OURS = "Promptly"
BARE = "bare engine"
SIZE_INCHES = (7.2, 4.2)


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    path = options.images / FIGURES
    figures = json.loads(path.read_text(encoding="utf-8"))
    if options.ttft is not None:
        figures[TTFT] = ttft_of(read_json(options.ttft), options.about)
    if options.cache is not None:
        figures[CACHE] = cache_of(read_json(options.cache), options.about)
    path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draw_ttft(figures[TTFT], options.images / f"{TTFT}.svg")
    draw_cache(figures[CACHE], options.images / f"{CACHE}.svg")


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ttft", type=Path, help="layer.json of `make bench`")
    parser.add_argument("--cache", type=Path, help="eval_cache.json of `scripts/eval_cache.py`")
    parser.add_argument("--about", help="machine and date of the new result")
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of figures.json and the plots")
    options = parser.parse_args(words)
    if (options.ttft or options.cache) and not options.about:
        parser.error("--about is needed with --ttft and --cache: machine and date of the result")
    return options


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"draw_images: {path}: {error}")


def ttft_of(report: Mapping[str, Any], about: str) -> dict[str, Any]:
    """The median TTFT p50 (ms) of each series by number of streams, from the benchmark ``layer``."""
    series: dict[str, dict[str, float]] = {}
    for figure in report["figures"]:
        found = re.fullmatch(r"TTFT p50, (\d+) streams?", figure["name"])
        if found and figure["series"] and figure["median"] is not None:
            series.setdefault(figure["series"], {})[found[1]] = round(figure["median"], 1)
    return {"about": about, "unit": "ms", "series": series}


def cache_of(report: Mapping[str, Any], about: str) -> dict[str, Any]:
    """Recall and wrong hits among hits (%) of each threshold, from the evaluation."""
    return {
        "about": about,
        "embedder": report["embedder"],
        "pairs": sum(count for groups in report["reasons"].values() for count in groups.values()),
        "settings": {row["name"]: _point(row) for row in report["rows"]},
        "curves": {name: [_point(row) for row in report[key]] for key, name in CURVES.items()},
    }


def _point(row: Mapping[str, Any]) -> tuple[float, float]:
    return (
        round(100 * row["recall"]["value"], 1),
        round(100 * row["false_share"][TRAFFIC]["value"], 1),
    )


def draw_ttft(figures: Mapping[str, Any], path: Path) -> None:
    sheet, axes = _sheet("Time to first token on two cores, scripted engine (20 ms per token)")
    for colour, (name, points) in zip(COLOURS, figures["series"].items(), strict=False):
        is_bare = name.startswith(BARE)
        axes.plot(
            [int(streams) for streams in points],
            list(points.values()),
            "o--" if is_bare else "o-",
            color="grey" if is_bare else colour,
            linewidth=3 if name == OURS else 1.5,
            markersize=5,
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    streams = sorted({int(each) for points in figures["series"].values() for each in points})
    axes.set_xticks(streams, [str(each) for each in streams])
    ticks = [20, 50, 100, 200, 500, 1000, 2000, 5000]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="streams at once", ylabel="TTFT p50, ms (log scale)")
    _save(sheet, axes, path)


def draw_cache(figures: Mapping[str, Any], path: Path) -> None:
    sheet, axes = _sheet(f"Semantic cache: recall against wrong hits, {figures['pairs']} pairs")
    for colour, (name, points) in zip(COLOURS, figures["curves"].items(), strict=False):
        recall, wrong = zip(*points, strict=True)
        axes.plot(recall, wrong, "o-", color=colour, markersize=3, label=name)
    for name, (recall, wrong) in figures["settings"].items():
        axes.plot(recall, wrong, "kD", markersize=6)
        axes.annotate(name, (recall, wrong), xytext=(8, -12), textcoords="offset points", fontsize=9)
    axes.set(xlabel="paraphrases that hit (recall), %", ylabel="wrong hits among hits, %")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _save(sheet, axes, path)


def _sheet(title: str) -> tuple[Any, Any]:
    """A figure and its axes, without pyplot's global state."""
    from matplotlib.figure import Figure as Sheet

    sheet = Sheet(figsize=SIZE_INCHES, layout="constrained")
    axes = sheet.subplots()
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    return sheet, axes


def _save(sheet: Any, axes: Any, path: Path) -> None:
    """The same figures give the same bytes: the file has no date, and its ids no random part."""
    import matplotlib as mpl

    axes.legend(fontsize=9, frameon=False)
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        sheet.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
