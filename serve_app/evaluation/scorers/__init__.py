"""How an answer is scored: ``base.py`` is the contract, ``registry.py`` knows all scorers by name."""
