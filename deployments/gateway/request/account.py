"""One request's account: what it has reserved of the limits that it is in, and what it used in the end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from serve_app.errors import BudgetEnded, BudgetSpent, PromptlyError, RateLimited
from serve_app.openai.usage import NO_TOKENS, AnswerEnd, TokenCounts
from serve_app.quotas.book import Book
from serve_app.quotas.cost import Use, left_early, most_used, room_for_answer, shares
from serve_app.quotas.lengths import FIRST_PACE, Lengths, least_reserved
from serve_app.quotas.limits import AT_GATE, BUDGETS, MOST, TOKENS, Bound, model_scopes, sender_scopes
from serve_app.quotas.purse import Part, Purse, Taken
from serve_app.quotas.rates import Left, narrowest, rate_headers
from serve_app.request.auth import Identity
from serve_app.request.record import RequestRecord
from serve_app.request.timing import Timeline
from serve_app.usage.prices import FREE, Price

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

GATEWAY_TIMEOUT = 504

Cut = Callable[[BudgetEnded], None]

GoesOn = Callable[[Callable[[], object]], bool]
"""Whether others still wait for the same generation; what it is given is called when that ends."""


class Quotas(Protocol):
    """What a gateway has of all limits."""

    book: Book
    lengths: Lengths
    cached_rate: float

    def price(self, model: str) -> Price: ...

    async def reserve(self, parts: Sequence[Part]) -> list[Taken]:
        """Raises: RateLimited, BudgetSpent, LimitsUnavailable."""
        ...

    def settle(self, taken: Taken, used: int) -> None: ...

    def spend(self, parts: Iterable[Part]) -> None: ...

    def unix(self) -> float: ...

    def disbelieve(self, model: str, member: str) -> None:
        """A member has reported more tokens than its request can have used."""
        ...


@dataclass(slots=True)
class Order:
    """What is asked of a member. ``model`` is the model's own name, ``priced`` the one that has its price;
    ``prompt`` and ``output`` are tokens, estimated or as the request says; ``output`` ``None``: as many as
    the model will. ``weight``: so many answers. ``streams``: it is seen how long they become. ``size``:
    bytes of the body. ``is_implied``: the request leaves ``output`` to the member. ``longest``: the most that
    every member can be told of the length of an answer; ``told``: what they are told, in tokens."""

    model: str
    priced: str
    prompt: float
    output: int | None
    weight: int = 1
    generates: bool = True
    streams: bool = True
    size: int = 0
    is_implied: bool = False
    longest: int = 0
    told: int | None = None

    @property
    def is_open(self) -> bool:
        """It generates, and says no limit."""
        return self.generates and self.output is None

    @property
    def at_most(self) -> int:
        """Tokens of all answers, as members were told; far more than any has where they were not."""
        return MOST if self.told is None else self.told * self.weight

    def credible(self, counts: TokenCounts) -> TokenCounts:
        """What a member says, as far as the request can have used it."""
        most = most_used(self.size, self.output, self.weight)
        prompt = None if counts.prompt is None else min(counts.prompt, most.prompt)
        output = None if counts.output is None else min(counts.output, most.output)
        return counts if (prompt, output) == (counts.prompt, counts.output) else TokenCounts(prompt, output)


class AtMembers:
    """What members do for one request: ``cut`` ends their answer, ``goes_on`` is that of a generation which
    others may join, and which may then outlast this client."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._asked_ns = 0
        self._answers: list[tuple[AnswerEnd, bool]] = []
        self.cut: Cut | None = None
        self.was_cut = False
        self.goes_on: GoesOn | None = None
        self.has_joined = False

    def joined(self) -> None:
        """The request gets an answer that another request asked for, whatever it has reserved."""
        self.has_joined, self.goes_on, self._asked_ns = True, None, 0

    def of(self, order: Order | None) -> Order | None:
        """What members do for the request itself."""
        return None if self.has_joined else order

    def own(self, goes_on: GoesOn) -> None:
        """It has lost that one, and asks a member itself."""
        self.has_joined, self.goes_on = False, goes_on

    def asked(self) -> None:
        """One is asked now: from here on it works."""
        self._asked_ns = self._asked_ns or self._timeline.clock()

    def unanswered(self) -> None:
        """It did not answer, through no fault of the client's."""
        self._asked_ns = 0

    def began(self, cut: Cut, end: AnswerEnd, *, is_stream: bool) -> None:
        """One answers: ``cut`` ends its answer, ``end`` knows how far it is."""
        self.cut = cut
        self._answers.append((end, is_stream))

    def pieces(self) -> int:
        """Pieces of all streams, so far."""
        return sum(end.pieces for end, is_stream in self._answers if is_stream)

    def generated(self, order: Order | None, lengths: Lengths) -> TokenCounts:
        """Tokens of all that have answered so far; nothing is known without one."""
        per_piece = 1.0 if order is None else lengths.per_piece(order.model)
        counts = [end.tokens(is_stream, per_piece) for end, is_stream in self._answers]
        if not counts:
            return NO_TOKENS
        prompt = next((each.prompt for each in counts if each.prompt is not None), None)
        outputs = [each.output for each in counts if each.output is not None]
        return TokenCounts(prompt, sum(outputs) if outputs else None)

    def made(self, counted: TokenCounts, order: Order | None, lengths: Lengths) -> int:
        """Tokens so far. Those of a whole answer are seen only at its end: until then as many as it can have
        by now."""
        if counted.output is not None or order is None or order.streams:
            return counted.output or 0
        if self.has_joined or self._answers or not self._asked_ns:
            return 0
        pace = lengths.pace(order.model) or FIRST_PACE
        most = most_used(order.size, order.output, order.weight).output
        return min(most, math.ceil(pace * order.weight * self._asked_for_s()))

    def _asked_for_s(self) -> float:
        """Since when members work."""
        return (self._timeline.clock() - self._asked_ns) / 1e9

    def guess(self, order: Order, reserved: Use, counts: TokenCounts, lengths: Lengths) -> TokenCounts | None:
        """Estimated tokens for a client that left; ``None``: the answer was counted, or no member was
        asked."""
        if not self._asked_ns or counts.output is not None:
            return None
        pace = lengths.pace(order.model)
        of_all = None if pace is None else pace * order.weight
        use = left_early(reserved, self._asked_for_s(), of_all, streams=order.streams)
        return TokenCounts(use.prompt if counts.prompt is None else counts.prompt, use.output)


@contextmanager
def awaited(members: AtMembers) -> Iterator[None]:
    """A whole answer is awaited: until it is here, ``cut`` ends that. Raises: BudgetEnded: it has."""
    task = asyncio.current_task()
    assert task is not None, "members are asked in a task"
    before, said = task.cancelling(), list[BudgetEnded]()

    def cut(error: BudgetEnded) -> None:
        said.append(error)
        task.cancel()

    members.cut = cut
    try:
        yield
    except asyncio.CancelledError:
        if said and task.uncancel() <= before:
            members.was_cut = True
            raise said[0] from None
        raise
    finally:
        if members.cut is cut:
            members.cut = None


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
        self._taken: list[Taken] = []
        self._permits: list[Taken] = []
        self._order: Order | None = None
        self._price = FREE
        self._reserved = Use(0, 0)
        self._paid_turns: TokenCounts | None = None
        self.members = AtMembers(timeline)
        self._look: asyncio.TimerHandle | None = None
        self._more: asyncio.Task[None] | None = None
        self._is_over = False

    async def enter(self) -> None:
        """Count the request for who sends it. Raises: RateLimited, LimitsUnavailable."""
        try:
            await self._count(self._scopes)
        finally:
            self._tell_client()

    async def place(self, order: Order) -> Order:
        """Count it for the model, and reserve what it may cost. Once; a later call finds it done. Returns
        what is placed.

        Raises: RateLimited, BudgetSpent, LimitsUnavailable: nothing is reserved.
        """
        if self._order is not None or self._is_over:
            return self._order or order
        quotas = self._quotas
        self._price = quotas.price(order.priced)
        output = order.output
        if output is None:
            output = (
                quotas.lengths.reserved(self._senders, order.model, order.streams) if order.generates else 0
            )
        use = Use(quotas.lengths.prompt(self._senders[-1], order.model, order.prompt), output * order.weight)
        self._order, scopes = order, self._scopes
        self._scopes = (*scopes, *model_scopes(self._tenant, order.model))
        try:
            await self._count(self._scopes[len(scopes) :])
            parts_of = partial(self._parts, self._scopes, EVERY_COST)
            taken, use = await _reserve(quotas, use, parts_of, partial(_fitting, order, use, self._price))
            self._keep(taken)
        except BaseException:
            self._order = None
            raise
        finally:
            self._tell_client()
        self._reserved = use
        if any(each.purse.bound not in AT_GATE for each in taken):
            order.told = _told(order, use, self._price, self._parts(self._scopes, BUDGETS, use))
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
        self._pay(Use(min(prompt, most.prompt), min(output, most.output)))
        self._paid_turns = TokenCounts(0, 0)  # what its record says then is paid
        self._keep(await self._quotas.reserve(self._parts(self._scopes, EVERY_COST, Use(prompt, output))))

    def handed_over(self, timeline: Timeline) -> Account:
        """An account for the same request without its client. It is not placed yet, and still counts as
        running."""
        assert self._order is None, "what is reserved has one account"
        other = Account(self._quotas, self._identity, self._path, timeline, self._headers)
        other.members = self.members
        other._permits, self._permits = self._permits, []
        return other

    def settle(self, record: RequestRecord) -> TokenCounts | None:
        """The request has ended. A generation that goes on for others counts, for this one, when that ends.

        Returns what it is taken to have used, where that was not counted, or not credibly; else ``None``.
        """
        goes_on = self.members.goes_on if _has_left(record) and self._order is not None else None
        if goes_on is not None and goes_on(partial(self._end, record)):
            return None
        return self._end(record)

    def _end(self, record: RequestRecord) -> TokenCounts | None:
        if self._is_over:
            return None
        self._is_over = True
        for waiting in (self._look, self._more):
            if waiting is not None:
                waiting.cancel()
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
        used = _used(record, self.members.of(self._order), self._reserved, counts, self._quotas.cached_rate)
        is_news = record.tokens.output is None and counts.output is not None
        if guess is None and is_news:
            guess = TokenCounts(used.prompt, used.output)
        if self._order is None and (used.prompt or used.output):
            self._price = self._quotas.price(record.model or "")
            self._quotas.spend(self._parts(self._scopes, EVERY_COST, used))
        self._pay(used)
        for permit in self._permits:
            self._quotas.settle(permit, 0)
        _learn(record, self._order, self._senders, self._quotas.lengths)
        _learn_pieces(record, self._order, self.members.pieces(), self._quotas.lengths)
        return guess

    def _generated(self) -> TokenCounts:
        return self.members.generated(self._order, self._quotas.lengths)

    async def _count(self, scopes: Sequence[str]) -> None:
        parts = self._parts(scopes, AT_GATE, Use(0, 0))
        if not parts:
            return
        for taken in await self._quotas.reserve(parts):
            if taken.purse.bound is Bound.PARALLEL and not self._is_over:
                self._permits.append(taken)
            else:
                self._quotas.settle(taken, taken.amount)

    def _keep(self, taken: Sequence[Taken]) -> None:
        """Until the end, which may have come meanwhile."""
        if not self._is_over:
            self._taken += taken
            return
        for each in taken:
            self._quotas.settle(each, 0)

    def _parts(self, scopes: Sequence[str], bounds: frozenset[Bound], use: Use) -> list[Part]:
        book, tenant, price = self._quotas.book, self._tenant, self._price
        return [
            (book.purse(scope, bound, tenant), use.of(bound, price))
            for scope in scopes
            for bound in book.table.of(scope)
            if bound in bounds
        ]

    def _tell_client(self) -> None:
        left = partial(_narrowest, self._quotas.book, self._scopes, self._tenant)
        self._headers |= rate_headers(self._path, left({Bound.REQUESTS}), left(TOKENS), self._quotas.unix())

    # ---- an answer of unknown length ----

    def _made(self) -> int:
        return self.members.made(self._generated(), self._order, self._quotas.lengths)

    def _watch(self) -> None:
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._compare)

    def _compare(self) -> None:
        """Reserve more for an answer that is longer than was expected."""
        if self._is_over or self._order is None or self._reserved.output >= self._order.at_most:
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
            parts_of = partial(self._parts, self._scopes, BUDGETS)
            taken, more = await _reserve(self._quotas, again, parts_of, partial(_rest, again, self._price))
            self._keep(taken)
        except PromptlyError as error:
            is_over = self._made() >= ENDS * self._reserved.output
            if is_over and error.status == BudgetEnded.status and self.members.cut is not None:
                self.members.cut(BudgetEnded(_limit_of(error), is_lost=not order.streams))
                return
        else:
            self._reserved = Use(self._reserved.prompt, self._reserved.output + more.output)
        with suppress(PromptlyError):  # by the minute others wait, and what runs goes on
            self._keep(await self._quotas.reserve(self._parts(self._scopes, MINUTES_COST, again)))
        self._watch()

    def _pay(self, used: Use) -> None:
        _settle(self._quotas, self._taken, used, self._price)
        self._taken = []


def _settle(quotas: Quotas, taken: Sequence[Taken], used: Use, price: Price) -> None:
    """What was reserved in several steps counts as one."""
    steps: dict[Purse, list[Taken]] = {}
    for each in taken:
        steps.setdefault(each.purse, []).append(each)
    for purse, of_purse in steps.items():
        total = used.of(purse.bound, price)
        for each, part in zip(of_purse, shares([each.amount for each in of_purse], total), strict=True):
            quotas.settle(each, part)


def _narrowest(book: Book, scopes: Iterable[str], tenant: str, bounds: Iterable[Bound]) -> Left | None:
    """Of all limits of these bounds; ``None``: there is none."""
    left = [
        Left(limit, max(0, min(limit, purse.left + purse.free)), purse.resets_s)
        for scope in scopes
        for bound, limit in book.table.of(scope).items()
        if bound in bounds
        for purse in [book.purse(scope, bound, tenant)]
    ]
    return narrowest(left)


async def _reserve(
    quotas: Quotas,
    use: Use,
    parts_of: Callable[[Use], list[Part]],
    less_of: Callable[[Sequence[Part]], Use | None],
) -> tuple[list[Taken], Use]:
    """Reserves as much, or what ``less_of`` says of refused parts. Raises: as ``Quotas.reserve``."""
    parts = parts_of(use)
    try:
        return await quotas.reserve(parts), use
    except (RateLimited, BudgetSpent):
        less = less_of(parts)
        if less is None:
            raise
    return await quotas.reserve(parts_of(less)), less


def _fitting(order: Order, use: Use, price: Price, parts: Sequence[Part]) -> Use | None:
    """What else to reserve for an answer without a limit, where what is expected of it was refused: all that
    is left. ``None``: that is less than any such answer reserves, or its length is no expectation."""
    if not order.is_open:
        return None
    output = _room(use.prompt, price, parts)
    least = least_reserved(order.streams) * order.weight
    return Use(use.prompt, output) if least <= output < use.output else None


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
    if order.streams or not order.is_open or not purses:
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


def _learn_pieces(record: RequestRecord, order: Order | None, pieces: int, lengths: Lengths) -> None:
    if order is not None and record.tokens.output is not None and record.cache not in HITS:
        lengths.saw_pieces(order.model, pieces, record.tokens.output)
