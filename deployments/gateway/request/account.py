"""One request's account: what it has reserved of the limits that it is in, and what it used in the end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from deployments.gateway.request.at_members import AtMembers
from deployments.gateway.request.holdings import Holdings, Quotas
from deployments.gateway.request.order import Order
from serve_app.errors import BudgetEnded, BudgetSpent, PromptlyError, RateLimited
from serve_app.openai.usage import NO_TOKENS, TokenCounts
from serve_app.quotas.cost import Use, most_used, room_for_answer
from serve_app.quotas.lengths import Lengths, least_reserved
from serve_app.quotas.limits import (
    AT_GATE,
    BUDGETS,
    READING,
    Bound,
    model_scopes,
    sender_scopes,
)
from serve_app.quotas.purse import Part
from serve_app.quotas.rates import narrowest, rate_headers
from serve_app.request.auth import Identity
from serve_app.request.record import RequestRecord
from serve_app.request.timing import Timeline
from serve_app.routing.prompt import BYTES_PER_TOKEN
from serve_app.usage.prices import Price

HITS = frozenset({"exact", "semantic", "joined"})
"""Values of ``x-cache`` that mean: no member was asked for this client."""

LOOK_S = 0.5
"""How often a generation without a limit of its own is compared with its reservation."""

NEARLY = 0.7
"""Part of a reservation from which on more is reserved."""

ENDS = 0.9
"""Part from which on an answer ends, where no more can be reserved: the rest comes until the next look."""

EVERY_COST = frozenset(Bound) - AT_GATE
MINUTES_COST = EVERY_COST - BUDGETS

OK, GATEWAY_TIMEOUT = 200, 504


class Account:
    """The gate makes it. It is one class because each step of a request changes what the next may do."""

    def __init__(
        self, quotas: Quotas, identity: Identity, path: str, timeline: Timeline, headers: dict[str, str]
    ) -> None:
        """``headers``: those of the response, which show the client its limits."""
        self._quotas = quotas
        self._identity = identity
        self._tenant = identity.tenant
        self._senders = sender_scopes(identity.tenant, identity.key_id, identity.user)
        self._scopes = self._senders
        self._path = path
        self._timeline = timeline
        self._headers = headers
        self._held = Holdings(quotas, identity.tenant)
        self._order: Order | None = None
        self._reserved = Use(0, 0)
        self._paid_turns: TokenCounts | None = None
        self.members = AtMembers(timeline)
        self._look: asyncio.TimerHandle | None = None
        self._more: asyncio.Task[None] | None = None

    async def enter(self, *, runs: bool = True) -> None:
        """Count the request for who sends it; ``runs``: also as one that runs. Raises: RateLimited,
        LimitsUnavailable."""
        await self._held.count(self._scopes, AT_GATE if runs else READING)

    async def place(self, order: Order) -> Order:
        """Count it for the model, and reserve what it may cost. Once; a later call finds it done. Returns
        what is placed.

        Raises: RateLimited, BudgetSpent, LimitsUnavailable: nothing is reserved.
        """
        held, quotas = self._held, self._quotas
        if self._order is not None or held.is_over:
            return self._order or order
        held.price = quotas.price(order.priced)
        output = order.output
        if output is None:
            output = (
                quotas.lengths.reserved(self._senders, order.model, order.is_seen) if order.generates else 0
            )
        use = Use(quotas.lengths.prompt(self._senders[-1], order.model, order.prompt), output * order.weight)
        self._order, scopes = order, self._scopes
        self._scopes = (*scopes, *model_scopes(self._tenant, order.model))
        try:
            await held.count(self._scopes[len(scopes) :])
            less = partial(_fitting, order, use, held.price)
            # What an answer is told that is not seen is what the owner says is left.
            on_credit = order.is_seen or not order.is_open
            taken, use = await held.reserve(self._scopes, EVERY_COST, use, less, on_credit=on_credit)
        except BaseException:
            self._order = None
            raise
        self._reserved = use
        if any(each.purse.bound not in AT_GATE for each in taken):
            order.told = _told(order, use, held.price, held.parts(self._scopes, BUDGETS, use))
            if order.is_open:
                self._watch()
        return order

    async def turn(self, prompt: int, output: int) -> None:
        """A session has used so much; reserve the same for its next turn.

        Raises: RateLimited, BudgetSpent, LimitsUnavailable.
        """
        if self._order is None:
            return
        most = most_used(0, None, 1)
        self._held.pay(Use(min(prompt, most.prompt), min(output, most.output)))
        self._paid_turns = TokenCounts(0, 0)  # what its record says then is paid
        await self._held.reserve(self._scopes, EVERY_COST, Use(prompt, output))

    def last_turn(self, prompt: int, output: int) -> None:
        """A session ended in the middle of a turn, which has used so much: it is paid at the end."""
        if self._order is not None:
            self._paid_turns = TokenCounts(prompt, output)

    def handed_over(self, timeline: Timeline) -> Account:
        """An account for the same request without its client. It is not placed yet, and still counts as
        running."""
        assert self._order is None, "what is reserved has one account"
        other = Account(self._quotas, self._identity, self._path, timeline, self._headers)
        other.members = self.members
        self._held.hand_permits_to(other._held, self._senders)
        return other

    def settle(self, record: RequestRecord) -> TokenCounts | None:
        """The request has ended. A generation that goes on for others counts, for this one, when that ends.

        Returns what it is taken to have used, where that was not counted, or not credibly; else ``None``.
        """
        goes_on = self.members.goes_on if self._order is not None else None
        if goes_on is None:
            return self._end(record)
        later = record  # a hit that was faster costs nothing, what others now get of the member does
        if record.cache in HITS:
            later = msgspec.structs.replace(record, cache=None, tokens=NO_TOKENS)
        return None if goes_on(partial(self._end, later)) else self._end(record)

    def _end(self, record: RequestRecord) -> TokenCounts | None:
        if self._held.is_over:
            return None
        self._stop()
        said = _known(record.tokens, self._generated()) if self._paid_turns is None else self._paid_turns
        counts = said if self._order is None else self._order.credible(said)
        _learn_pace(record, self._order, self._quotas.lengths)  # as it was, whatever of it is believed
        guess = None if counts is said else counts
        if counts is not said:
            self._quotas.disbelieve(record.model or "", record.member or "")
            record = msgspec.structs.replace(record, tokens=counts)
        is_counted = self._paid_turns is not None or record.cache in HITS
        if (_has_left(record) or self.members.was_cut) and not is_counted and self._order is not None:
            guess = self.members.guess(self._order, self._reserved, counts, self._quotas.lengths) or guess
            counts = guess or counts
        if guess is None and counts.prompt is None and counts.output is None:
            guess = _uncounted(record, self._order, self._reserved, self.members.answers.size())
            counts = guess or counts
        used = _used(record, self.members.of(self._order), self._reserved, counts, self._quotas.cached_rate)
        is_news = record.tokens.output is None and counts.output is not None
        if guess is None and is_news:
            guess = TokenCounts(used.prompt, used.output)
        if self._order is None and (used.prompt or used.output):
            self._held.spend(self._scopes, EVERY_COST, used, self._quotas.price(record.model or ""))
        self._held.pay(used)
        self._held.release()
        _learn(record, self._order, self._senders, self._quotas.lengths)
        _learn_pieces(record, self._order, self.members.answers.pieces(), self._tenant, self._quotas.lengths)
        return guess

    def _generated(self) -> TokenCounts:
        order, lengths = self._order, self._quotas.lengths
        if order is not None and order.hides:  # its events say nothing
            return self.members.answers.tokens(None)
        per_piece = 1.0 if order is None else lengths.per_piece(self._tenant, order.model)
        return self.members.answers.tokens(per_piece)

    def _stop(self) -> None:
        self._held.is_over = True
        for waiting in (self._look, self._more):
            if waiting is not None:
                waiting.cancel()

    def tell_client(self) -> None:
        """Put what is left of the limits into the response's headers."""
        quotas = self._quotas
        requests, tokens = narrowest(quotas.book.known(self._scopes), time.monotonic())
        self._headers |= rate_headers(self._path, requests, tokens, quotas.unix())

    # ---- an answer of unknown length ----

    def _made(self) -> int:
        return self.members.made(self._generated(), self._order, self._quotas.lengths)

    def _watch(self) -> None:
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._compare)

    def _compare(self) -> None:
        """Reserve more for an answer that is longer than was expected."""
        if self._held.is_over or self._order is None or self._reserved.output >= self._order.at_most:
            return
        if self._made() >= NEARLY * self._reserved.output:
            self._more = asyncio.get_running_loop().create_task(self._reserve_more(self._order))
        else:
            self._watch()

    async def _reserve_more(self, order: Order) -> None:
        """Or end the generation, where a budget has truly ended."""
        missing = order.at_most - self._reserved.output
        again = Use(0, min(missing, max(self._reserved.output, self._made())))
        try:
            less = partial(_rest, again, self._held.price)
            _, more = await self._held.reserve(self._scopes, BUDGETS, again, less)
        except PromptlyError as error:
            is_over = self._made() >= ENDS * self._reserved.output
            if is_over and error.status == BudgetEnded.status and self.members.cut is not None:
                held = not isinstance(error, BudgetSpent) and self._held.others_hold()
                self.members.was_cut = True
                self.members.cut(BudgetEnded(_limit_of(error), is_lost=not order.streams, is_held=held))
                return
        else:
            self._reserved = Use(self._reserved.prompt, self._reserved.output + more.output)
        with suppress(PromptlyError):  # by the minute others wait, and what runs goes on
            await self._held.reserve(self._scopes, MINUTES_COST, again)
        self._watch()


def _fitting(order: Order, use: Use, price: Price, parts: Sequence[Part]) -> Use | None:
    """What else to reserve for an answer without a limit, where what is expected of it was refused: all that
    is left, but no less than any such answer reserves. ``None``: that is as much, or its length is no
    expectation."""
    if not order.is_open:
        return None
    output = _room(use.prompt, price, parts)
    least = least_reserved(order.is_seen) * order.weight
    fits = max(output, least)  # the minimum is refused with what is true of it
    return Use(use.prompt, fits) if fits < use.output else None


def _limit_of(error: PromptlyError) -> str:
    return error.limit if isinstance(error, RateLimited) else error.message


def _rest(use: Use, price: Price, parts: Sequence[Part]) -> Use | None:
    """All that is left, for an answer that runs. ``None``: nothing is, or it is not what was refused."""
    output = _room(0, price, parts)
    return Use(0, output) if 0 < output < use.output else None


def _told(order: Order, reserved: Use, price: Price, parts: Sequence[Part]) -> int | None:
    """What members are told of the length of an answer: of one that is not seen before its end, all that
    budgets have room for. What others have reserved counts as room: most use less. ``None``: nothing."""
    if order.is_implied:
        return order.output
    purses = [purse for purse, _ in parts if purse.limit >= 0]
    if order.is_seen or not order.is_open or not purses:
        return None
    rooms = [(purse.bound, purse.left + purse.free + purse.busy) for purse in purses]
    room = min(room_for_answer(reserved.prompt, bound, price, most) for bound, most in rooms)
    each = max(room, reserved.output) // order.weight
    return each if each < order.longest else None


def _room(prompt: int, price: Price, parts: Sequence[Part]) -> int:
    """Tokens of an answer that all limits have room for, as far as this gateway knows."""
    rooms = [(purse.bound, purse.left + purse.free) for purse, _ in parts if purse.limit >= 0]
    return min((room_for_answer(prompt, bound, price, room) for bound, room in rooms), default=0)


def _used(
    record: RequestRecord, order: Order | None, reserved: Use, counts: TokenCounts, cached_rate: float
) -> Use:
    """What a finished request counts for. A prompt whose length no member counts counts as it was
    estimated, if a member has begun an answer."""
    if record.cache in HITS and (order is None or record.member is None):
        tokens = record.tokens
        return Use(tokens.prompt or 0, tokens.output or 0).at_rate(cached_rate)
    if order is None or (counts.prompt is None and counts.output is None):
        return Use(0, 0)
    return Use(reserved.prompt if counts.prompt is None else counts.prompt, counts.output or 0)


def _uncounted(
    record: RequestRecord, order: Order | None, reserved: Use, answer_bytes: int
) -> TokenCounts | None:
    """Of a whole answer whose member counts nothing, as of a recording: the prompt as it was estimated, and
    what is generated by its bytes. ``None``: no member has answered the request itself."""
    if order is None or order.is_free or record.member is None:
        return None
    if record.error is not None or record.status != OK:
        return None
    output = math.ceil(answer_bytes / BYTES_PER_TOKEN) if order.generates else 0
    if record.cache in HITS or reserved.prompt == output == 0:
        return None
    return TokenCounts(reserved.prompt, output)


def _has_left(record: RequestRecord) -> bool:
    """The client, by itself or by the time-out that it named."""
    status = record.status if record.error_status is None else record.error_status
    return record.client_gone or (record.chose_deadline and status == GATEWAY_TIMEOUT)


def _known(first: TokenCounts, second: TokenCounts) -> TokenCounts:
    """Each count by the first that says it."""
    prompt = second.prompt if first.prompt is None else first.prompt
    return TokenCounts(prompt, second.output if first.output is None else first.output)


def _learn(record: RequestRecord, order: Order | None, senders: Sequence[str], lengths: Lengths) -> None:
    """An answer that its client has limited or left says nothing of how long others become: a client could
    have less reserved than its answers take."""
    if order is None or record.member is None or record.cache in HITS:
        return
    tokens = record.tokens
    if tokens.prompt is not None:
        lengths.saw_prompt(senders[-1], order.model, round(order.prompt), tokens.prompt)
    was_told = order.told is not None and record.finish_reason == "length"
    ended_itself = not was_told and order.output is None and record.error is None and not record.client_gone
    if tokens.output is not None and order.generates and ended_itself:
        lengths.saw_answer(senders, order.model, tokens.output // max(1, order.weight))


def _learn_pace(record: RequestRecord, order: Order | None, lengths: Lengths) -> None:
    """From the moment when a member is asked: a stream's first piece may be of many tokens."""
    if order is None or record.member is None or record.cache in HITS:
        return
    output, seconds = record.tokens.output, record.upstream_ms / 1000
    if output is not None and seconds > 0 and not _has_left(record):
        lengths.saw_pace(order.model, output // max(1, order.weight), seconds)


def _learn_pieces(
    record: RequestRecord, order: Order | None, pieces: int, tenant: str, lengths: Lengths
) -> None:
    is_seen = order is not None and order.is_seen and record.cache not in HITS
    if order is not None and is_seen and record.tokens.output is not None:
        lengths.saw_pieces(tenant, order.model, pieces, record.tokens.output)
