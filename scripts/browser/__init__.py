"""Headless Chromium, driven by its DevTools protocol."""

from browser.chromium import CHROMIUM, Browser, BrowserError, Page, Waited, chromium

__all__ = ["CHROMIUM", "Browser", "BrowserError", "Page", "Waited", "chromium"]
