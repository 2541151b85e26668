"""The cross-encoder that ships: it reads two questions together and says whether one answer serves both."""

from serve_app.cache.cross_encoder.card import Card
from serve_app.cache.cross_encoder.library import find_cross_encoder
from serve_app.cache.cross_encoder.model import CrossEncoder

__all__ = ["Card", "CrossEncoder", "find_cross_encoder"]
