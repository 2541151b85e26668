"""Whether adapters, drafts and parallel ranks fit a model, and which parsers do, from the contents of its
files.

Checks of the model's shape alone (heads, layers, context, quantization) are in ``serve_app.planning.checks``.
"""

from serve_app.engines.adapters import AdapterFacts, check_adapters, fitting_rank
from serve_app.engines.drafts import check_depth, same_vocabulary, vocabulary_of
from serve_app.engines.parsers import ChatFiles, Parsers, parsers_of
from serve_app.engines.ranks import check_data_parallel

__all__ = [
    "AdapterFacts",
    "ChatFiles",
    "Parsers",
    "check_adapters",
    "check_data_parallel",
    "check_depth",
    "fitting_rank",
    "parsers_of",
    "same_vocabulary",
    "vocabulary_of",
]
