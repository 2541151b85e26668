"""`autoevals`: the scorers of that library (the extra `eval`).

Those that ask a model ask the judge of the run, and those that embed its embedder: without a client of their
own, autoevals would send answers to a service of its makers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.document import strict_json
from serve_app.evaluation.scorers.base import Score, ScoreError, Services
from serve_app.evaluation.scorers.judge import reply_object
from serve_app.evaluation.scorers.numbers import as_number, numbers_in
from serve_app.evaluation.scorers.options import OptionScorer, shown, verdict

MOST_CHARS = 50_000
"""Longest answer: the time of an edit distance grows with the square of the length."""

MOST_TIME_S = 300.0
OURS = frozenset({"api_key", "base_url", "client", "model", "engine", "embedding_model"})
"""Options that say who is asked; the run does."""

NOT_READ: Mapping[str, str] = {"Moderation": "it needs a moderation service"}

CALL = """\
Reply with one JSON object and nothing else. It holds the arguments of the function {name}, with this schema:
{schema}"""


class Autoevals(OptionScorer):
    """``name``: a class of autoevals, such as ``Levenshtein`` or ``Factuality``; ``options`` are its
    constructor's, ``arguments`` are more of what it is asked (``criteria`` of ``ClosedQA``). ``value``, or
    what the case expects, is its ``expected``; the case's variable ``context`` its ``context``. It passes
    from ``threshold``.
    """

    compares: ClassVar[bool] = False

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    arguments: dict[str, Any] = Field(default_factory=dict)
    threshold: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)

    def check(self, *, has_expected: bool) -> None:
        found = scorer_class(self.name)
        for each in sorted(OURS & self.options.keys()):
            raise ValueError(f"`options.{each}`: the run decides who is asked")
        try:
            found(**self.options)
        except Exception as error:
            raise ValueError(f"`options`: {self.name} refuses them: {error}") from None

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        if len(answer.text) > MOST_CHARS:
            return verdict(False, f"the answer has {len(answer.text)} characters, more than {MOST_CHARS}")
        output, expected = answer.text, self.wanted(case)
        try:
            given = self._given(output, expected)
        except ValueError as error:
            return verdict(False, f"{self.name}: {error}: {shown(answer.text)}")
        asked = {"input": case.question, **self.arguments}
        if "context" in case.variables:
            asked.setdefault("context", case.variables["context"])
        try:
            result = await asyncio.wait_for(self._evaluated(given, asked, services), MOST_TIME_S)
        except ScoreError:
            raise
        except TimeoutError:
            raise ScoreError(f"{self.name} took longer than {MOST_TIME_S:g} s") from None
        except Exception as error:
            raise ScoreError(
                f"{self.name} gave no score: {type(error).__name__}: {shown(str(error))}"
            ) from None
        if not isinstance(result.score, int | float):
            raise ScoreError(f"{self.name} gave no score")
        value = float(result.score)
        return Score(
            value, value >= self.threshold, f"{self.name} gives {value:.3g}, wanted {self.threshold:g}"
        )

    def _given(self, output: Any, expected: Any) -> tuple[Any, Any]:
        """Both in the type that the scorer compares.

        Raises:
            ValueError: the answer has not that type.
        """
        if self.name == "NumericDiff":
            numbers = numbers_in(output)
            if not numbers:
                raise ValueError("there is no number")
            return numbers[-1], as_number(expected)
        if self.name == "ListContains":
            return strict_json(output), expected
        return output, expected if isinstance(expected, str | None) else json.dumps(expected)

    async def _evaluated(self, given: tuple[Any, Any], asked: dict[str, Any], services: Services) -> Any:
        found = scorer_class(self.name)
        output, expected = given
        if "client" not in inspect.signature(found).parameters:
            return await asyncio.to_thread(found(**self.options).eval, output, expected, **asked)
        scorer = found(**self.options, client=judge_client(services))
        return await scorer.eval_async(output, expected, **asked)


def scorer_class(name: str) -> Any:
    """
    Raises:
        ValueError: autoevals is not installed, or has no such scorer.
    """
    try:
        import autoevals
    except ImportError:
        raise ValueError("`autoevals` is not installed: pip install 'promptly-serve[eval]'") from None
    found = getattr(autoevals, name, None)
    if not (inspect.isclass(found) and issubclass(found, autoevals.Scorer)) or name in NOT_READ:
        why = f": {NOT_READ[name]}" if name in NOT_READ else ""
        raise ValueError(f"`name`: autoevals has no scorer {name!r} that can run here{why}")
    return found


def judge_client(services: Services) -> Any:
    """A client of autoevals that asks only the judge and the embedder of the run."""
    from autoevals.oai import LLMClient

    class JudgeClient(LLMClient):  # type: ignore[misc]
        def __init__(self) -> None:
            self.openai, self.is_async, self._is_wrapped = None, True, False
            self.complete, self.embed, self.moderation = _completes(services), _embeds(services), None
            self.RateLimitError = _Never

    return JudgeClient()


class _Never(Exception):
    """The services retry by themselves."""


def _completes(services: Services) -> Any:
    async def complete(**request: Any) -> dict[str, Any]:
        messages = list(request["messages"])
        if not request.get("tools"):
            return {"choices": [{"message": {"content": await services.ask_judge(messages)}}]}
        function = request["tools"][0]["function"]
        schema = json.dumps(function["parameters"])
        messages.append({"role": "user", "content": CALL.format(name=function["name"], schema=schema)})
        arguments = json.dumps(reply_object(await services.ask_judge(messages)))
        call = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        return {"choices": [{"message": {"tool_calls": [call]}}]}

    return complete


def _embeds(services: Services) -> Any:
    async def embed(**request: Any) -> dict[str, Any]:
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        return {"data": [{"embedding": list(vector)} for vector in await services.embed(texts)]}

    return embed
