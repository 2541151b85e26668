"""Which model answers a request: the meaning of each model name, and rules that choose a model."""

from serve_app.model_choice.base import Candidate, ChoiceRequest, ModelRule, Price
from serve_app.model_choice.registry import RULES

__all__ = ["RULES", "Candidate", "ChoiceRequest", "ModelRule", "Price"]
