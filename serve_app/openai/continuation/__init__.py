"""A stream that survives the death of its engine: another engine continues from the tokens already sent.

``obstacle`` says whether a request's answer could be continued faithfully. ``ResumableStream`` passes the
bytes on and knows what is missing when they end too early. A continuation is a text completion whose prompt
is the prompt's tokens plus the answer's tokens so far; the client sees one undisturbed stream. What a text
completion cannot express (tools, reasoning, images) goes on as the same chat, at engines that can be told the
tokens so far: ``ResumableChat``.
"""

from serve_app.openai.continuation.chat import ResumableChat
from serve_app.openai.continuation.eligibility import Resumable, chat_obstacle, obstacle, resumable
from serve_app.openai.continuation.plan import (
    RESUME_PATH,
    TOLD_FIELD,
    Ending,
    EngineRequest,
    SameChat,
    TokenLimits,
)
from serve_app.openai.continuation.stream import ResumableStream

__all__ = [
    "RESUME_PATH",
    "TOLD_FIELD",
    "Ending",
    "EngineRequest",
    "Resumable",
    "ResumableChat",
    "ResumableStream",
    "SameChat",
    "TokenLimits",
    "chat_obstacle",
    "obstacle",
    "resumable",
]
