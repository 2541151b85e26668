"""The APIs of clients: the contract, its implementations, and the dialect of each path.

| dialect | paths | a stream that fails ends with |
|---|---|---|
| ``openai`` | all others | ``data: {"error": …}`` |
| ``responses`` | ``/v1/responses`` | ``response.failed``, then ``event: error``, numbered like all events |
| ``anthropic`` | ``/v1/messages`` | ``event: error`` with the outer ``"type": "error"`` |
"""

from serve_app.dialects.base import Dialect, Ending, MakeWriter, Reading, StreamErrors, Writer
from serve_app.dialects.registry import dialect_of

__all__ = ["Dialect", "Ending", "MakeWriter", "Reading", "StreamErrors", "Writer", "dialect_of"]
