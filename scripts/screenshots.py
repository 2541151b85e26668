"""Take the console's screenshots of README.md and docs/operations.md from a running application.

    python scripts/screenshots.py --url http://127.0.0.1:8000 --token-file ADMIN_TOKEN_FILE

It needs Debian's package `chromium`. It asks a few questions in the playground, then visits each page. The
start of the application says where the file with the admin token is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from browser import Browser, BrowserError, Page, chromium

IMAGES = Path(__file__).parents[1] / "docs" / "images"
QUESTION = "What is the capital of France?"
QUESTIONS = (QUESTION, QUESTION, "Can you tell me the capital of France?")
WIDTH, HEIGHT = 1180, 740
ENTER = 13

DONE = "document.querySelectorAll('.answer[data-done=yes]').length"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of the application")
    parser.add_argument(
        "--token-file", type=Path, required=True, help="holds the admin token or an admin's key"
    )
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder for the images")
    options = parser.parse_args(words)
    try:
        token = options.token_file.read_text(encoding="utf-8").strip()
        asyncio.run(take(options.url, token, options.images))
    except (OSError, BrowserError) as error:
        sys.exit(f"screenshots: {error}")


async def take(url: str, token: str, images: Path) -> None:
    """Raises: BrowserError: a page did not show what it should."""
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            await _pages(browser, url, token, images)


async def _pages(browser: Browser, url: str, token: str, images: Path) -> None:
    async with browser.page(f"{url}/console", width=WIDTH, height=HEIGHT) as page:
        await page.value(f"session.signIn({token!r})")
        for question in QUESTIONS:
            await _ask(page, question)
            await asyncio.sleep(1)  # the answer is stored meanwhile
        await _save(page, images / "console_playground.png")
        await _visit(page, "requests", "document.querySelector('[data-outcome=miss]') !== null")
        await page.click("[data-outcome=miss]")
        await page.until("document.querySelector('.detail .waterfall') !== null")
        await page.value("scrollTo(0, 0)")
        await page.look(width=WIDTH, height=HEIGHT, dark=True)
        await _save(page, images / "console_requests.png")


async def _ask(page: Page, question: str) -> None:
    await page.until("document.querySelector('.composer[data-ready=yes]') !== null")
    before = await page.value(DONE)
    await page.type("#prompt", question)
    await page.press("Enter", ENTER)
    await page.until(f"{DONE} > {before}", within_s=120)


async def _visit(page: Page, name: str, shown: str) -> None:
    await page.value(f"location.hash = '#/{name}'")
    await page.until(shown, within_s=60)


async def _save(page: Page, path: Path) -> None:
    await asyncio.sleep(0.5)  # the last frame is drawn
    image = await page.screenshot()
    await asyncio.to_thread(path.write_bytes, image)
    print(f"{path}: {len(image):,} bytes")


if __name__ == "__main__":
    main()
