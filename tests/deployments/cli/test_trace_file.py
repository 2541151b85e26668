"""A trace is a CSV file with three columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.trace_file import TraceError, read_trace

HEAD = "t_s,input_tokens,output_tokens\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_requests_come_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, HEAD + "2.5,30,3\n0.0,10,1\n"))
    assert (trace.arrivals, trace.prompts, trace.outputs) == ((0.0, 2.5), (10, 30), (1, 3))
    assert trace.span_s == 2.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 't_s'"),
        ("t_s,input_tokens\n", "no column 'output_tokens'"),
        (HEAD, "0 requests"),
        (HEAD + "0,1,1\n", "1 requests"),
        (HEAD + "0,1,1\nx,1,1\n", r"trace\.csv:3: expected numbers"),
        (HEAD + "0,1\n1,1,1\n", r"trace\.csv:2: expected numbers"),
        (HEAD + "0,-1,1\n1,1,1\n", "no negative numbers"),
    ],
)
def test_what_is_no_trace_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        read_trace(written(tmp_path, text))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.csv")
