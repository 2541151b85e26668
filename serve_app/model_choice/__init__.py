"""Which model answers a request: what each name stands for, and rules that choose one."""

from serve_app.model_choice.base import Candidate, ChoiceRequest, ModelRule, Price
from serve_app.model_choice.registry import RULES

__all__ = ["RULES", "Candidate", "ChoiceRequest", "ModelRule", "Price"]
