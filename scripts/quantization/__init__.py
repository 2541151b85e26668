"""What ``scripts/quantize.py`` is made of: arguments, samples, llm-compressor's environment, and the card.

``worker`` and what it imports also run in llm-compressor's own environment, which has none of Promptly's
packages. The folder is not called ``quantize``, because that is the command's module, which stands beside it.
"""
