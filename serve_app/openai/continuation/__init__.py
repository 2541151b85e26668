"""A stream that survives the death of its engine: another engine continues from the tokens already sent.

``obstacle`` says whether a request's answer could be continued faithfully. ``ResumableStream`` passes the
bytes on and knows what is missing when they end too early. A continuation is a text completion whose prompt
is the prompt's tokens plus the answer's tokens so far; the client sees one undisturbed stream.
"""

from serve_app.openai.continuation.eligibility import obstacle
from serve_app.openai.continuation.plan import Ending, EngineRequest, TokenLimits
from serve_app.openai.continuation.stream import ResumableStream

__all__ = ["Ending", "EngineRequest", "ResumableStream", "TokenLimits", "obstacle"]
