"""The table of the gateway's routes: the source of its handlers and of ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from serve_app.api import schemas
from serve_app.api.roles import ADMINS, EVERYONE, KEEPERS, LOOKERS, SENDERS, Role
from serve_app.errors import (
    AccountsUnavailable,
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    CacheUnavailable,
    Conflict,
    FeedbackUnavailable,
    Forbidden,
    MethodNotAllowed,
    NoReplica,
    NotFound,
    OverCapacity,
    PromptlyError,
    ResponsesUnavailable,
    SignInUnavailable,
    Unauthorized,
    UnsupportedMediaType,
    UpgradeRequired,
)
from serve_app.items.registry import SHAPES
from serve_app.settings.paths import AUDIO, ENGINE_PATHS, OTHER_NAMES, REALTIME

JSON = "application/json"
FORM = "multipart/form-data"
JSON_LINES = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
HTML = "text/html"
CSV = "text/csv"

Errors = tuple[type[PromptlyError], ...]

ANYWHERE: Errors = (BadRequest, Forbidden, MethodNotAllowed, OverCapacity, PromptlyError)
"""Errors of the code around every handler."""

BODY = (BodyTimeout, BodyTooLarge, UnsupportedMediaType)
ADMIN_ERRORS = (*ANYWHERE, Unauthorized)
CACHE_ERRORS = (*ADMIN_ERRORS, NotFound, CacheUnavailable)


class Access(Enum):
    """What a route asks for. ``KEY``: a key, if ``auth`` requires keys."""

    OPEN = "open"
    KEY = "key"
    ADMIN = "admin"


@dataclass(frozen=True)
class Parameter:
    """A query parameter or a header."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True)
class Operation:
    """One method of a route. ``takes``: media types of the body with their schemas; ``gives``: those of a
    successful response. ``errors`` is ``None`` if an engine answers: then any error is possible. ``audit``:
    what the audit log calls it; all that an administrator changes has such a name."""

    summary: str
    gives: Mapping[str, Any]
    takes: Mapping[str, Any] = field(default_factory=dict)
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    errors: tuple[type[PromptlyError], ...] | None = ANYWHERE
    statuses: tuple[int, ...] = (200,)
    answer_headers: tuple[Parameter, ...] = ()
    audit: str | None = None


ENDING = frozenset({"response_cancel"})
"""Handlers of POST that end something."""

FOLLOWED = "response"
"""The handler of what a GET may follow until it is whole (`?stream=true`)."""


@dataclass(frozen=True)
class Route:
    """``path`` in Starlette's notation. ``handler`` is the name of the handler in the gateway. ``unknown``:
    methods that get a 404, as if the path did not exist. ``is_socket``: it is a WebSocket, which begins as a
    GET. ``roles``: who may use it, where that does not follow from ``access`` (see ``may_use``)."""

    path: str
    handler: str
    access: Access
    operations: Mapping[str, Operation]
    unknown: tuple[str, ...] = ()
    is_socket: bool = False
    roles: frozenset[Role] | None = None

    @property
    def may_use(self) -> frozenset[Role]:
        """The roles that may use it; a viewer changes nothing, so it has no viewer if a method does."""
        if self.roles is not None:
            return self.roles
        return ADMINS if self.access is Access.ADMIN else SENDERS

    @cached_property
    def methods(self) -> frozenset[str]:
        """All methods; HEAD is added to GET."""
        head = {"HEAD"} if "GET" in self.operations else set()
        return frozenset({*self.operations, *self.unknown, *head})

    def runs(self, method: str, query: bytes) -> bool:
        """Whether such a request counts as one that runs: not if it reads, removes or ends what there is; but
        one that may follow a response does."""
        if method == "POST":
            return self.handler not in ENDING
        return self.is_socket or (self.handler == FOLLOWED and bool(query))

    def media_types(self, method: str) -> tuple[str, ...]:
        """Accepted media types of a request's body; empty for a method without a body."""
        operation = self.operations.get(method)
        return () if operation is None else tuple(operation.takes)


def _header(name: str, description: str, **schema: Any) -> Parameter:
    return Parameter(name, description, schema or {"type": "string"})


DEADLINE = _header("x-request-timeout-ms", "This request's deadline, milliseconds.", type="string")
PRIORITY = _header("x-priority", "0 (first) to 9 (last) in the queue; default: 5.", type="string")
REQUEST_ID = _header("x-request-id", "Names the request in traces; default: a new id.")
TRACE = _header("traceparent", "Joins a trace (W3C).")
RELAYED = (DEADLINE, PRIORITY, REQUEST_ID, TRACE)
CACHE_CONTROL = _header(
    "cache-control", "`no-cache` (write only), `no-store` (neither read nor write), `max-age=N`."
)
CACHE_TTL = _header("x-cache-ttl", "Seconds that the answer may be kept.")
CACHE_TAGS = _header("x-cache-tags", "Tags of the answer's entry, separated by commas.")
GENERATING = (
    *RELAYED,
    CACHE_CONTROL,
    _header("x-cache-threshold", "Least similarity of a semantic hit, 0 to 1."),
    CACHE_TTL,
    CACHE_TAGS,
    _header("x-model-tier", "Which of an auto model's tiers may answer."),
    _header("x-failover", "`off`: no other replica takes over."),
    _header("x-session-id", "Names the session, whose requests keep to one replica."),
)

SERVED_BY = _header("x-served-by", "The replica or upstream that began the answer, or `cache`.")
TIMING = _header("server-timing", "Milliseconds of each step.")
CACHE_STATUS = _header("x-cache", "`exact`, `joined`, `semantic`, `miss` or `bypass`.")
ANSWERED = (
    CACHE_STATUS,
    SERVED_BY,
    TIMING,
    _header("x-model", "The model that answers, if the request named an alias or an auto model."),
    _header("x-experiment", "The experiment that the request is in, and its arm: `name=arm`."),
    _header("x-prompt", "The version of a stored prompt that was used: `id@version`."),
    _header("x-cache-age", "Of a hit: seconds since the answer was made."),
    _header("x-cache-similarity", "Of a semantic hit."),
    _header("x-cache-score", "Of a semantic hit: the verifier's probability that the answer fits."),
    _header("x-cache-entry", "Of a semantic hit: for reports to `/admin/cache/feedback`."),
    _header("x-cache-stale", "`true`: the answer is being refreshed."),
    _header("x-cache-refused", "Why a near entry was not used."),
)
ITEM_HEADERS = (*RELAYED, CACHE_CONTROL, CACHE_TTL, CACHE_TAGS)
ITEM_ANSWERED = (
    _header("x-cache", "`exact` (every item), `partial`, `miss` or `bypass`."),
    _header("x-cache-items", "Items that the cache answered, of all, such as `3/8`."),
    SERVED_BY,
    TIMING,
)

SELECTORS = (
    Parameter("id", "An entry's id.", {"type": "string", "format": "uuid"}),
    Parameter("tag", "A tag.", {"type": "string", "minLength": 1}),
    Parameter("model", "A model's name.", {"type": "string", "minLength": 1}),
    Parameter("tenant", "A tenant's name.", {"type": "string", "minLength": 1}),
)
AFTER = Parameter("after", "`x-next` of the page before.", {"type": "string", "format": "uuid"})
REQUEST_FILTERS = (
    Parameter("id", "A request's id."),
    Parameter("model", "A model's name."),
    Parameter("tenant", "A tenant's name."),
    Parameter("session", "The pseudonym of a session."),
    Parameter("outcome", "What `x-cache` said, or `error`."),
    Parameter("slower_ms", "Milliseconds that it took at least.", {"type": "number", "minimum": 0}),
    Parameter("before", "`next` of the page before.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
    Parameter("limit", "1 to 500; default: 100.", {"type": "integer", "minimum": 1, "maximum": 500}),
)
PLAN_QUESTION = (
    Parameter("rate", "Requests per second.", {"type": "number", "exclusiveMinimum": 0, "maximum": 1000}),
    Parameter("prompt_tokens", "Mean; default: 1000.", {"type": "number", "exclusiveMinimum": 0}),
    Parameter("output_tokens", "Mean; default: 200.", {"type": "number", "exclusiveMinimum": 0}),
    Parameter("ttft_ms", "Target; default: 1000.", {"type": "number", "exclusiveMinimum": 0}),
    Parameter("tpot_ms", "Target; default: 100.", {"type": "number", "exclusiveMinimum": 0}),
    Parameter("price", "Of one device per hour.", {"type": "number", "exclusiveMinimum": 0}),
    Parameter("device", "A GPU, instead of that of the settings."),
)
USAGE_QUESTION = (
    Parameter("from", "First UTC day.", {"type": "string", "format": "date"}),
    Parameter("to", "Last UTC day.", {"type": "string", "format": "date"}),
    Parameter("tenant", "A tenant's name."),
    Parameter("user", "A user of a key."),
    Parameter("key", "A key's id."),
    Parameter("model", "A model's name."),
    Parameter("by", "Of `day`, `month`, `tenant`, `key`, `user`, `model`; default: `day,tenant,model`."),
    Parameter("limit", "Rows, 1 to 50000.", {"type": "integer", "minimum": 1, "maximum": 50_000}),
    Parameter("format", "`json` (default) or `csv`.", {"enum": ["json", "csv"]}),
)
NEXT = _header("x-next", "`after` of the next page; missing on the last.")


def _get(summary: str, schema: Any, **options: Any) -> dict[str, Operation]:
    return {"GET": Operation(summary, {JSON: schema}, **options)}


def _generates(summary: str, request: Any, answer: Any) -> dict[str, Operation]:
    return {
        "POST": Operation(
            summary,
            {JSON: answer, EVENT_STREAM: schemas.EVENTS},
            {JSON: request},
            headers=GENERATING,
            errors=None,
            answer_headers=ANSWERED,
        )
    }


def _relays(summary: str) -> dict[str, Operation]:
    takes = {JSON: schemas.NAMES_MODEL}
    gives = {JSON: schemas.ANYTHING, EVENT_STREAM: schemas.EVENTS}
    answered = (CACHE_STATUS, SERVED_BY, TIMING)
    return {"POST": Operation(summary, gives, takes, headers=RELAYED, errors=None, answer_headers=answered)}


def _admin(summary: str) -> dict[str, Operation]:
    return _get(summary, schemas.OBJECT, errors=ADMIN_ERRORS)


def _page(summary: str, gives: Mapping[str, Any]) -> dict[str, Operation]:
    return {"GET": Operation(summary, gives, errors=(*ANYWHERE, NotFound))}


NOT_FOUND_TOO = ("GET", "PUT", "PATCH", "DELETE")
STORED_ERRORS = (*ANYWHERE, Unauthorized, NotFound, ResponsesUnavailable)
PAGE = (
    Parameter("limit", "1 to 100; default: 20.", {"type": "integer", "minimum": 1, "maximum": 100}),
    Parameter("order", "`desc` (default) or `asc`.", {"enum": ["asc", "desc"]}),
    Parameter("after", "`last_id` of the page before."),
)


def _stored(summary: str, schema: Any, **options: Any) -> Operation:
    """What reads or changes the store of responses."""
    return Operation(summary, {JSON: schema}, errors=STORED_ERRORS, **options)


def _changes(summary: str, schema: Any) -> Operation:
    return Operation(summary, {JSON: schema}, {JSON: schemas.OBJECT}, errors=(*STORED_ERRORS, *BODY))


STORED: tuple[Route, ...] = (
    Route(
        "/v1/responses/{id}",
        "response",
        Access.KEY,
        {
            "GET": _stored(
                "A stored response.",
                schemas.RESPONSE,
                query=(Parameter("stream", "`true`: as a stream, once it is finished."),),
            ),
            "DELETE": _stored("Forget a response.", schemas.OBJECT),
        },
    ),
    Route(
        "/v1/responses/{id}/input_items",
        "response_items",
        Access.KEY,
        {"GET": _stored("A page of a response's own input.", schemas.ITEM_LIST, query=PAGE)},
    ),
    Route(
        "/v1/responses/{id}/cancel",
        "response_cancel",
        Access.KEY,
        {"POST": _stored("End a background response.", schemas.RESPONSE)},
    ),
    Route(
        "/v1/conversations",
        "conversations",
        Access.KEY,
        {"POST": _changes("Begin a conversation.", schemas.OBJECT)},
    ),
    Route(
        "/v1/conversations/{id}",
        "conversation",
        Access.KEY,
        {
            "GET": _stored("A conversation.", schemas.OBJECT),
            "POST": _changes("Replace its metadata.", schemas.OBJECT),
            "DELETE": _stored("Forget a conversation and its items.", schemas.OBJECT),
        },
    ),
    Route(
        "/v1/conversations/{id}/items",
        "conversation_items",
        Access.KEY,
        {
            "GET": _stored("A page of its items.", schemas.ITEM_LIST, query=PAGE),
            "POST": _changes("Add items.", schemas.ITEM_LIST),
        },
    ),
    Route(
        "/v1/conversations/{id}/items/{item}",
        "conversation_item",
        Access.KEY,
        {
            "GET": _stored("One item.", schemas.OBJECT),
            "DELETE": _stored("Remove an item.", schemas.OBJECT),
        },
    ),
)

KEY_ERRORS = (*ADMIN_ERRORS, NotFound, Conflict, AccountsUnavailable)
KEY_FILTERS = (
    Parameter("tenant", "A tenant's name."),
    Parameter("user", "A user's name."),
    Parameter("state", "`active` (default), `revoked` or `any`.", {"enum": ["active", "revoked", "any"]}),
    Parameter("after", "`next` of the page before."),
    Parameter("limit", "1 to 1000; default: 100.", {"type": "integer", "minimum": 1, "maximum": 1000}),
)


def _key_change(summary: str, audit: str, statuses: tuple[int, ...] = (200,)) -> Operation:
    errors, answer = (*KEY_ERRORS, *BODY), {JSON: schemas.OBJECT}
    takes = {JSON: schemas.OBJECT}
    return Operation(summary, answer, takes, errors=errors, statuses=statuses, audit=audit)


KEYS: tuple[Route, ...] = (
    Route(
        "/admin/keys",
        "admin_keys",
        Access.ADMIN,
        {
            "GET": Operation(
                "A page of keys, without their secrets.",
                {JSON: schemas.OBJECT},
                query=KEY_FILTERS,
                errors=KEY_ERRORS,
            ),
            "POST": _key_change("Make a key; its secret is shown once.", "keys.create", (201,)),
        },
        roles=KEEPERS,
    ),
    Route(
        "/admin/keys/{id}",
        "admin_key",
        Access.ADMIN,
        {
            "GET": Operation("One key.", {JSON: schemas.OBJECT}, errors=KEY_ERRORS),
            "PATCH": _key_change("Change what a key may do.", "keys.change"),
            "DELETE": Operation(
                "Revoke a key.", {JSON: schemas.OBJECT}, errors=KEY_ERRORS, audit="keys.revoke"
            ),
        },
        roles=KEEPERS,
    ),
    Route(
        "/admin/keys/{id}/rotate",
        "admin_key_rotate",
        Access.ADMIN,
        {"POST": _key_change("Give a key a new secret; the old one works for a while.", "keys.rotate")},
        roles=KEEPERS,
    ),
    Route(
        "/admin/refused-users",
        "admin_refused_users",
        Access.ADMIN,
        {
            "GET": Operation(
                "Users whom every gateway refuses.",
                {JSON: schemas.OBJECT},
                query=(Parameter("tenant", "A tenant's name."),),
                errors=KEY_ERRORS,
            ),
            "POST": _key_change("Refuse a user, whatever token, session or key it sends.", "users.refuse"),
            "DELETE": Operation(
                "Let a user in again.",
                {JSON: schemas.OBJECT},
                query=(Parameter("tenant", "Whose user it is."), Parameter("user", "The user's name.")),
                errors=KEY_ERRORS,
                audit="users.let_in",
            ),
        },
        roles=KEEPERS,
    ),
    Route(
        "/admin/limits",
        "admin_limits",
        Access.ADMIN,
        {
            "GET": Operation(
                "Limits of scopes, and what is used of them.",
                {JSON: schemas.OBJECT},
                query=(
                    Parameter("scope", "How the scopes begin, such as `tenant:`."),
                    Parameter("after", "`next` of the page before."),
                ),
                errors=KEY_ERRORS,
            ),
            "PUT": _key_change(
                "Give a scope limits; those left out have the default of the settings.", "limits.set"
            ),
            "DELETE": Operation(
                "Leave a scope the defaults.",
                {JSON: schemas.OBJECT},
                query=(Parameter("scope", "The scope."),),
                errors=KEY_ERRORS,
                audit="limits.remove",
            ),
        },
    ),
)

FEEDBACK_ERRORS = (*ADMIN_ERRORS, NotFound, FeedbackUnavailable)
FEEDBACK_FILTERS = (
    Parameter("tenant", "A tenant's name."),
    Parameter("model", "A model's name."),
    Parameter("request_id", "A request's id."),
    Parameter("negative", "`true`: a score below 0.5.", {"enum": ["true", "false"]}),
    Parameter("corrected", "`true`: with a correction.", {"enum": ["true", "false"]}),
    Parameter("after", "`next` of the page before.", {"type": "integer", "minimum": 1}),
    Parameter("limit", "1 to 500; default: 100.", {"type": "integer", "minimum": 1, "maximum": 500}),
)
FEEDBACK_ROUTES: tuple[Route, ...] = (
    Route(
        "/v1/feedback",
        "feedback",
        Access.KEY,
        {
            "POST": Operation(
                "What a person says of an answer; it replaces what the same one said before.",
                {JSON: schemas.OBJECT},
                {JSON: schemas.SAID},
                errors=(*FEEDBACK_ERRORS, *BODY),
            )
        },
    ),
    Route(
        "/admin/feedback",
        "admin_said",
        Access.ADMIN,
        {
            "GET": Operation(
                "What was said of answers, the newest first. It holds texts.",
                {JSON: schemas.OBJECT},
                query=FEEDBACK_FILTERS,
                errors=FEEDBACK_ERRORS,
                audit="feedback.read",
            ),
            "DELETE": Operation(
                "Forget a tenant's feedback, and the requests that more could be said of.",
                {JSON: schemas.OBJECT},
                query=(Parameter("tenant", "A tenant's name."),),
                errors=FEEDBACK_ERRORS,
                audit="feedback.erase",
            ),
        },
        roles=KEEPERS,
    ),
    Route(
        "/admin/suggestions",
        "admin_suggestions",
        Access.ADMIN,
        _get(
            "What captured requests, feedback and the cache's counters say to change.",
            schemas.OBJECT,
            errors=FEEDBACK_ERRORS,
        ),
        roles=LOOKERS,
    ),
    Route(
        "/admin/captures",
        "admin_captures",
        Access.ADMIN,
        {
            "GET": Operation(
                "Captured requests, the oldest first.",
                {JSON: schemas.OBJECT},
                query=(
                    Parameter("tenant", "A tenant's name."),
                    Parameter("model", "A model's name."),
                    Parameter("content", "`true`: with texts.", {"enum": ["true", "false"]}),
                    Parameter("after", "`next` of the page before.", {"type": "integer", "minimum": 1}),
                    Parameter(
                        "limit", "1 to 500; default: 100.", {"type": "integer", "minimum": 1, "maximum": 500}
                    ),
                ),
                errors=FEEDBACK_ERRORS,
                audit="captures.read",
            ),
            "DELETE": Operation(
                "Forget what was captured of a tenant.",
                {JSON: schemas.OBJECT},
                query=(Parameter("tenant", "A tenant's name."),),
                errors=FEEDBACK_ERRORS,
                audit="captures.erase",
            ),
        },
        roles=KEEPERS,
    ),
)

READ_HERE = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", *SHAPES, *AUDIO, REALTIME})


def _relayed(path: str) -> Route:
    """A path that is relayed to the model that the body names, if its members offer it."""
    return Route(path, "relay", Access.KEY, _relays("Relayed unchanged."), unknown=NOT_FOUND_TOO)


def _items(path: str) -> Route:
    """A path whose answer is a list of items: each comes from the cache, or from the model's members."""
    operation = Operation(
        "Vectors, scores, classes or tokens of texts; known ones come from the cache.",
        {JSON: schemas.ANYTHING},
        {JSON: schemas.NAMES_MODEL},
        headers=ITEM_HEADERS,
        errors=None,
        answer_headers=ITEM_ANSWERED,
    )
    return Route(path, "items", Access.KEY, {"POST": operation}, unknown=NOT_FOUND_TOO)


def _audio(path: str) -> Route:
    operation = Operation(
        "The text of a recording.",
        {JSON: schemas.ANYTHING, "text/plain": schemas.TEXT, EVENT_STREAM: schemas.EVENTS},
        {FORM: schemas.RECORDING},
        headers=ITEM_HEADERS,
        errors=None,
        answer_headers=(CACHE_STATUS, SERVED_BY, TIMING),
    )
    return Route(path, "audio", Access.KEY, {"POST": operation}, unknown=NOT_FOUND_TOO)


SIGN_IN_ERRORS = (*ANYWHERE, NotFound, SignInUnavailable)
SIGN_IN: tuple[Route, ...] = (
    Route(
        "/sign-in",
        "sign_in",
        Access.OPEN,
        {
            "GET": Operation(
                "Sends the browser to the provider to sign in to the console.",
                {},
                query=(Parameter("page", "The console's page to open afterwards."),),
                errors=SIGN_IN_ERRORS,
                statuses=(302,),
            )
        },
    ),
    Route(
        "/sign-in/callback",
        "sign_in_callback",
        Access.OPEN,
        {
            "GET": Operation(
                "Where the provider sends the browser back to: begins its session.",
                {},
                query=(
                    Parameter("code", "The provider's code."),
                    Parameter("state", "As it was sent to the provider."),
                ),
                errors=(*SIGN_IN_ERRORS, Unauthorized),
                statuses=(302,),
                audit="sign_in",
            )
        },
    ),
    Route(
        "/sign-out",
        "sign_out",
        Access.OPEN,
        {
            "POST": Operation(
                "Ends the browser's session.", {JSON: schemas.OBJECT}, errors=(*ANYWHERE, NotFound)
            )
        },
    ),
)
ITEM_PATHS = (*SHAPES, *(path for path, own in OTHER_NAMES.items() if own in SHAPES))

ROUTES: tuple[Route, ...] = (
    Route(
        "/v1/chat/completions",
        "chat",
        Access.KEY,
        _generates("An answer to a chat, streamed or not.", schemas.CHAT_REQUEST, schemas.CHAT_ANSWER),
    ),
    Route(
        "/v1/completions",
        "completions",
        Access.KEY,
        _generates(
            "A continuation of a text, streamed or not.", schemas.COMPLETION_REQUEST, schemas.TEXT_ANSWER
        ),
    ),
    Route(
        "/v1/responses",
        "responses",
        Access.KEY,
        _generates("A response, streamed or not.", schemas.RESPONSES_REQUEST, schemas.RESPONSE),
    ),
    *STORED,
    Route(
        "/v1/messages",
        "messages",
        Access.KEY,
        _generates(
            "Anthropic's Messages API: an answer to a chat, streamed or not.",
            schemas.MESSAGES_REQUEST,
            schemas.MESSAGE,
        ),
    ),
    Route(
        "/v1/messages/count_tokens",
        "count_tokens",
        Access.KEY,
        {
            "POST": Operation(
                "The tokens of a prompt, by the model's own tokenizer.",
                {JSON: schemas.TOKEN_COUNT},
                {JSON: schemas.COUNT_TOKENS_REQUEST},
                headers=RELAYED,
                errors=None,
                answer_headers=(SERVED_BY, TIMING),
            )
        },
    ),
    Route(
        "/v1/embeddings",
        "embeddings",
        Access.KEY,
        {
            "POST": Operation(
                "Vectors of texts.",
                {JSON: schemas.EMBEDDINGS},
                {JSON: schemas.EMBEDDING_REQUEST},
                headers=ITEM_HEADERS,
                errors=None,
                answer_headers=ITEM_ANSWERED,
            )
        },
    ),
    Route(
        "/v1/models",
        "models",
        Access.KEY,
        _get("All model names that a request may use.", schemas.MODELS, errors=ADMIN_ERRORS),
        roles=EVERYONE,
    ),
    Route(
        "/v1/models/{model:path}",
        "model",
        Access.KEY,
        _get("One model.", schemas.MODEL, errors=(*ADMIN_ERRORS, NotFound)),
        roles=EVERYONE,
    ),
    Route(
        "/v1/me",
        "me",
        Access.KEY,
        _get("Who sends this request: tenant, user, role, models.", schemas.OBJECT, errors=ADMIN_ERRORS),
        roles=EVERYONE,
    ),
    *SIGN_IN,
    Route(
        "/health",
        "health",
        Access.OPEN,
        _get("The process is up. `cache`: the state of the cache, where there is one.", schemas.HEALTH),
    ),
    Route(
        "/ping",
        "ping",
        Access.OPEN,
        {
            "GET": Operation("As `/health`.", {JSON: schemas.HEALTH}),
            "POST": Operation("As `/health`.", {JSON: schemas.HEALTH}),
        },
    ),
    Route(
        "/ready",
        "ready",
        Access.OPEN,
        _get("Every model can answer (200), or not yet (503).", schemas.STATUS, statuses=(200, 503)),
    ),
    Route("/version", "version", Access.OPEN, _get("The version of Promptly.", schemas.VERSION)),
    Route("/openapi.json", "openapi", Access.OPEN, _get("This description.", schemas.OBJECT)),
    Route(
        "/docs",
        "docs",
        Access.OPEN,
        {"GET": Operation("This description as a web page.", {HTML: schemas.TEXT})},
    ),
    Route(
        "/",
        "root",
        Access.OPEN,
        {
            "GET": Operation(
                "For a browser (`Accept: text/html`) the console; else where to find what.",
                {HTML: schemas.TEXT, JSON: schemas.OBJECT},
            )
        },
    ),
    Route("/console", "console", Access.OPEN, _page("The console, a web page.", {HTML: schemas.TEXT})),
    Route(
        "/console/{file}",
        "console_file",
        Access.OPEN,
        _page("A file of the console.", {"text/javascript": schemas.TEXT, "text/css": schemas.TEXT}),
    ),
    Route(
        "/admin/cache",
        "admin_cache",
        Access.ADMIN,
        {
            "GET": Operation(
                "Statistics, or the entries that the query selects.",
                {JSON: schemas.OBJECT},
                query=SELECTORS,
                errors=CACHE_ERRORS,
                audit="cache.read",
            ),
            "DELETE": Operation(
                "Remove the entries that the query selects.",
                {JSON: schemas.OBJECT},
                query=SELECTORS,
                errors=CACHE_ERRORS,
                audit="cache.purge",
            ),
        },
    ),
    Route(
        "/admin/cache/entries",
        "admin_entries",
        Access.ADMIN,
        {
            "GET": Operation(
                "A page of entries as JSON lines.",
                {JSON_LINES: schemas.TEXT},
                query=(AFTER,),
                errors=CACHE_ERRORS,
                answer_headers=(NEXT,),
                audit="cache.export",
            ),
            "POST": Operation(
                "Store entries, one per line.",
                {JSON: schemas.OBJECT},
                {JSON_LINES: schemas.TEXT, JSON: schemas.OBJECT},
                errors=(*CACHE_ERRORS, *BODY),
                audit="cache.import",
            ),
        },
    ),
    Route(
        "/admin/cache/feedback",
        "admin_feedback",
        Access.ADMIN,
        {
            "POST": Operation(
                "A person's verdict on a semantic hit.",
                {JSON: schemas.OBJECT},
                {JSON: schemas.FEEDBACK},
                errors=(*CACHE_ERRORS, *BODY),
                audit="cache.feedback",
            )
        },
    ),
    *KEYS,
    *FEEDBACK_ROUTES,
    Route(
        "/admin/engines",
        "admin_engines",
        Access.ADMIN,
        _admin("Each model's replicas as Serve reports them."),
        roles=LOOKERS,
    ),
    Route(
        "/admin/experiments",
        "admin_experiments",
        Access.ADMIN,
        _admin("What the arms of experiments take at this gateway, and which have ended."),
        roles=LOOKERS,
    ),
    Route(
        "/admin/experiments/verdict",
        "admin_verdict",
        Access.ADMIN,
        {
            "POST": Operation(
                "A verdict on the answers of an experiment's arm; `worse` ends the experiment.",
                {JSON: schemas.OBJECT},
                {JSON: schemas.VERDICT},
                errors=(*ADMIN_ERRORS, NotFound, *BODY),
                audit="experiments.verdict",
            )
        },
    ),
    Route(
        "/admin/fleet",
        "admin_fleet",
        Access.ADMIN,
        _admin("Members, their state and load."),
        roles=LOOKERS,
    ),
    Route(
        "/admin/latency",
        "admin_latency",
        Access.ADMIN,
        _admin("Percentiles of each step, and of 1, 5 and 30 minutes by model and outcome, ms."),
        roles=LOOKERS,
    ),
    Route(
        "/admin/alerts",
        "admin_alerts",
        Access.ADMIN,
        _admin("Alerts: what fires, and what has changed."),
        roles=LOOKERS,
    ),
    Route(
        "/admin/requests",
        "admin_requests",
        Access.ADMIN,
        _get(
            "The newest requests, newest first, without any text.",
            schemas.OBJECT,
            query=REQUEST_FILTERS,
            errors=(*ADMIN_ERRORS, NotFound),
        ),
        roles=LOOKERS,
    ),
    Route(
        "/admin/plan",
        "admin_plan",
        Access.ADMIN,
        _get(
            "What `promptly plan` says of the running settings.",
            schemas.OBJECT,
            query=PLAN_QUESTION,
            errors=(*ADMIN_ERRORS, NotFound),
        ),
        roles=LOOKERS,
    ),
    Route(
        "/admin/traffic",
        "admin_traffic",
        Access.ADMIN,
        _admin("Counts of requests by outcome."),
        roles=LOOKERS,
    ),
    Route(
        "/admin/usage",
        "admin_usage",
        Access.ADMIN,
        {
            "GET": Operation(
                "What keys, users, tenants and models used, by UTC day.",
                {JSON: schemas.OBJECT, CSV: schemas.TEXT},
                query=USAGE_QUESTION,
                errors=(*ADMIN_ERRORS, NotFound, AccountsUnavailable),
                audit="usage.read",
            )
        },
        roles=LOOKERS | {Role.TENANT_ADMIN},
    ),
    Route(
        "/admin/audit",
        "admin_audit",
        Access.ADMIN,
        _get(
            "The newest lines of the audit log, and its head.",
            schemas.OBJECT,
            query=(Parameter("last", "1 to 1000; default: 100.", {"type": "integer", "minimum": 1}),),
            errors=(*ADMIN_ERRORS, NotFound, AccountsUnavailable),
            audit="audit.read",
        ),
    ),
    *(_items(path) for path in ITEM_PATHS if path != "/v1/embeddings"),
    *map(_audio, AUDIO),
    Route(
        REALTIME,
        "realtime",
        Access.KEY,
        {
            "GET": Operation(
                "A WebSocket: the text of live audio, in the events of OpenAI's transcription sessions.",
                {},
                query=(
                    Parameter("model", "The model; else the first `session.update` names it."),
                    Parameter("intent", "`transcription`, which is the default."),
                ),
                headers=RELAYED,
                errors=(*ANYWHERE, Unauthorized, NotFound, UpgradeRequired, NoReplica),
                statuses=(101,),
                answer_headers=(SERVED_BY,),
            )
        },
        unknown=("POST", "PUT", "PATCH", "DELETE"),
        is_socket=True,
    ),
    *(_relayed(path) for path in ENGINE_PATHS if path not in READ_HERE),
    Route(
        "/v1/{rest:path}",
        "relay",
        Access.KEY,
        _relays("A path that the settings add (`models[].paths`); relayed."),
        unknown=NOT_FOUND_TOO,
    ),
)
