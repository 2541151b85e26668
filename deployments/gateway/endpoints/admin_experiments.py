"""``/admin/experiments``, and ``/verdict`` below it: what arms take, and a verdict on their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from deployments.gateway.experiments.trials import Trials
from deployments.gateway.request.bodies import ADMINISTRATORS, Bodies
from deployments.gateway.request.exchange import Exchange, Handler
from serve_app.errors import BadRequest, NotFound
from serve_app.json_errors import no_json


class _Verdict(msgspec.Struct, forbid_unknown_fields=True):
    experiment: str
    arm: str
    verdict: Literal["worse", "not worse", "undecided"]


class AdminExperiments:
    """Figures are those of this gateway; all judge what they have measured together."""

    def __init__(self, bodies: Bodies, trials: Trials) -> None:
        self._bodies = bodies
        self._trials = trials

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"admin_experiments": self.all, "admin_verdict": self.verdict}

    async def all(self, exchange: Exchange) -> None:
        await exchange.respond_json({"experiments": self._trials.described()})

    async def verdict(self, exchange: Exchange) -> None:
        """A judge of answers gives its verdict here. Raises: BadRequest, NotFound."""
        given = _verdict(await self._bodies.read(exchange, ADMINISTRATORS))
        exchange.audit_target = (
            f"experiment={given.experiment[:64]} arm={given.arm[:64]} verdict={given.verdict}"
        )
        if not self._trials.judged(given.experiment, given.arm, given.verdict):
            raise NotFound("There is no such arm of an experiment.", param="arm", code="unknown_arm")
        await self._trials.judge()
        await exchange.respond_json(msgspec.structs.asdict(given))


def _verdict(body: bytes) -> _Verdict:
    try:
        return msgspec.json.decode(body, type=_Verdict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = '{"experiment": "…", "arm": "…", "verdict": "worse" | "not worse" | "undecided"}'
        raise BadRequest(f"Expected {expected}: {no_json(error, body)}.") from error
