"""Requests whose answer is a list with one item for each text or pair of texts: vectors, scores, classes.

Each item is cached by itself, so that a request asks the engine only for those that are not known yet.
"""
