"""Engines that sleep and wake."""
