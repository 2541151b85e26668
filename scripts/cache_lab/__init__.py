"""Measures the semantic cache on labelled pairs of texts, and trains its verifier.

The commands are ``scripts/eval_cache.py``, ``scripts/replay_cache.py`` and
``scripts/train_cross_encoder.py``.
"""
