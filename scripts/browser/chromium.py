"""Headless Chromium (Debian's package `chromium`) over its DevTools protocol: a few calls and no driver.

async with chromium(folder) as browser, browser.page(url) as page:
    await page.until("document.title !== ''")
    await page.click("#send")
    image = await page.screenshot()
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")
START_S = 30.0
WAIT_S = 20.0
LOOK_EVERY_S = 0.03
PORT_FILE = "DevToolsActivePort"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--remote-debugging-port=0",
    "about:blank",
)


class BrowserError(Exception):
    """Chromium refused a command, or an expression raised."""


class Waited(BrowserError):
    """What was waited for did not come true."""


@dataclass
class Browser:
    """One connection to a running Chromium."""

    socket: aiohttp.ClientWebSocketResponse
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _pages: dict[str, Page] = field(default_factory=dict)
    _last: int = 0

    async def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Raises: BrowserError."""
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        of = {} if session is None else {"sessionId": session}
        await self.socket.send_json({"id": self._last, "method": method, "params": params, **of})
        async with asyncio.timeout(WAIT_S):
            said = await answer
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result

    async def listen(self) -> None:
        """Hand answers and events to those who wait for them, until the connection ends."""
        async for message in self.socket:
            said = json.loads(message.data)
            waiting = self._answers.pop(said.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
            elif (page := self._pages.get(said.get("sessionId", ""))) is not None:
                page.seen(said["method"], said["params"])

    @asynccontextmanager
    async def page(
        self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False
    ) -> AsyncIterator[Page]:
        """A new page in a profile of its own, with nothing stored."""
        context = (await self.ask("Target.createBrowserContext"))["browserContextId"]
        target = (await self.ask("Target.createTarget", url="about:blank", browserContextId=context))[
            "targetId"
        ]
        session = (await self.ask("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self._pages[session] = Page(self, session)
        try:
            for domain in ("Page", "Runtime", "Network", "Log"):
                await page.ask(f"{domain}.enable")
            await page.look(width=width, height=height, dark=dark, phone=phone)
            await page.go(url)
            yield page
        finally:
            del self._pages[session]
            await self.ask("Target.disposeBrowserContext", browserContextId=context)


@dataclass
class Page:
    """One tab. ``requests``: every URL that it asked for, with what came over the network of each, in bytes;
    ``complaints``: errors and warnings of its console, refusals of its content security policy included."""

    browser: Browser
    session: str
    requests: list[str] = field(default_factory=list)
    received: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.browser.ask(method, self.session, **params)

    def seen(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Network.loadingFinished":
                self.received[params["requestId"]] = int(params["encodedDataLength"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {params['message']}")

    async def look(self, *, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """The size in CSS pixels, the colours that the user's system asks for, and whether it is a phone."""
        scale = 2 if phone else 1
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone}
        await self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])

    async def go(self, url: str) -> None:
        await self.ask("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression (or promise) gives, as JSON. Raises: BrowserError: it raised."""
        said = await self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in said:
            details = said["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return said["result"].get("value")

    async def until(self, expression: str, within_s: float = WAIT_S) -> Any:
        """The expression's value, once it is true. Raises: Waited."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        found = await self.value(expression)
                    except BrowserError as error:  # the page is being loaded
                        found = None
                        if "Cannot find context" not in str(error) and "TypeError" not in str(error):
                            raise
                    if found:
                        return found
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            text = await self.value("document.body.innerText.slice(0, 1500)")
            raise Waited(f"{expression}\n{self.complaints}\n{text}") from None

    async def click(self, selector: str) -> None:
        """A click of the mouse in the middle of the first such element, once it is there and has kept its
        place between two looks: what loads above it moves it."""
        x, y = await self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " const at = [r.x + r.width / 2, r.y + r.height / 2], last = e.lastSeenAt; e.lastSeenAt = at;"
            " return last && last[0] === at[0] && last[1] === at[1] ? at : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def type(self, selector: str, text: str) -> None:
        """Type into a field, replacing what is there."""
        await self.until(f"document.querySelector({json.dumps(selector)}) !== null")
        found = f"document.querySelector({json.dumps(selector)})"
        await self.value(f"{found}.focus(), {found}.select()")
        await self.ask("Input.insertText", text=text)

    async def press(self, key: str, code: int = 0) -> None:
        """One key; ``code`` is its Windows key code where the page's default action is wanted."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            named = {"windowsVirtualKeyCode": code} if code else {}
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=text, **named)

    async def screenshot(self) -> bytes:
        """The page as PNG, as its viewport shows it."""
        return base64.b64decode((await self.ask("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def chromium(folder: Path, binary: str | None = CHROMIUM) -> AsyncIterator[Browser]:
    """A Chromium with its profile in ``folder``.

    Raises:
        BrowserError: it is not installed, or does not start.
    """
    if binary is None:
        raise BrowserError("There is no `chromium`: on Debian, `apt-get install chromium`.")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        binary, f"--user-data-dir={folder}", *FLAGS, stdout=quiet, stderr=quiet
    )
    try:
        address = await _address(process, folder / PORT_FILE)
        async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
            browser = Browser(socket)
            listening = asyncio.ensure_future(browser.listen())
            try:
                yield browser
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def _address(process: asyncio.subprocess.Process, port_file: Path) -> str:
    try:
        async with asyncio.timeout(START_S):
            while True:
                words = await asyncio.to_thread(_words, port_file)
                if len(words) == 2:
                    return f"ws://127.0.0.1:{words[0]}{words[1]}"
                if process.returncode is not None:
                    raise BrowserError(f"Chromium ended with status {process.returncode}.")
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise BrowserError(f"Chromium did not start within {START_S:g} s.") from None
