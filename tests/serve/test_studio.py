"""The studio in a real browser: light, dark, on a phone; drag, search, confirm, token; nothing from elsewhere."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Service, free_port

pytest.importorskip("fastapi", reason="needs FastAPI (pip install 'divmf[serve]')")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
TOKEN, EVIL = "a-long-enough-token", "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    import divmf

    run = tmp_path_factory.mktemp("studio") / "run"
    data = divmf.datasets.marketplace(60, 40, 900, 0)
    divmf.DivMF(accuracy_epochs=4, diversity_epochs=25, seed=0).fit(data.leave_one_out(0), run).run.pick(ndcg_drop=0.05)
    made = Service(run, free_port(), DIVMF_SERVE_TOKEN=TOKEN)
    made.ask("POST", "/items", {"items": [{"item": "i00003", "title": EVIL, "attributes": {"seller": EVIL}}]}, TOKEN)
    made.ask("PUT", "/rules", {"groups": {"seller": {"cap": "5%", "floor": 7}}}, TOKEN)
    for number in range(30):
        made.ask("POST", "/recommend", {"user": f"u{number:05d}"}, TOKEN)
    made.ask("POST", "/recommend", {"user": EVIL}, TOKEN)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


def until(tab: Any, expression: str, seconds: float = 20) -> None:
    """Wait until something holds; the page's own rules forbid the waiting that playwright would do inside it."""
    end = time.monotonic() + seconds
    while not tab.evaluate(expression):
        assert time.monotonic() < end, expression
        tab.wait_for_timeout(50)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 400), ("dark", 400)])
def test_the_studio_in_a_browser(served: Service, browser: Any, scheme: str, width: int, tmp_path: Path) -> None:
    tab = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    problems: list[str] = []
    fetched: list[str] = []
    tab.on("console", lambda said: problems.append(said.text) if "401" not in said.text else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("dialog", lambda dialog: problems.append(dialog.message))
    tab.on("request", lambda request: fetched.append(request.url))
    tab.goto(f"http://127.0.0.1:{served.port}/")
    tab.wait_for_selector("#login:not([hidden])")
    tab.fill("#token", "a-wrong-token")
    tab.click("#login button")
    until(tab, "document.getElementById('refused').textContent.includes('not the right one')")
    tab.fill("#token", TOKEN)
    tab.click("#login button")
    tab.wait_for_selector("#studio:not([hidden])")
    until(tab, "document.querySelectorAll('#people li').length >= 25")
    tab.wait_for_selector("#lorenz svg")
    last = int(tab.get_attribute("#handle", "max"))
    tab.evaluate("handle.value = handle.max; handle.dispatchEvent(new Event('input'))")
    name = served.ask("GET", "/curve", token=TOKEN)[1]["points"][last]["name"]
    until(tab, f"point.textContent.startsWith({name!r})")
    tab.wait_for_selector("#people li.new")
    tab.click("#people li button >> nth=0")
    until(tab, "document.querySelector('#people h3').textContent === 'history of 1'")
    tab.fill("#person", "x" * 201)
    tab.click("#someone button[value=user]")
    until(tab, "document.getElementById('unknown').textContent.includes('200')")
    problems.clear()  # the browser writes down that this was refused
    tab.fill("#search", "onerror")
    tab.click("#found button")
    tab.wait_for_selector("#item .cards")
    assert tab.inner_text("#item h3") == EVIL
    until(tab, "document.querySelectorAll('#rules tr').length === 1")
    assert EVIL in tab.inner_text("#rules td >> nth=0")
    assert tab.inner_text("#rules td >> nth=2") == "5.0%"
    assert tab.query_selector("img") is None
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(251, 250, 247)", "dark": "rgb(21, 23, 26)"}[scheme]
    tab.screenshot(path=str(tmp_path / "studio.png"), full_page=True)
    if scheme == "light" and width == 1200:
        before = served.ask("GET", "/curve", token=TOKEN)[1]["epoch"]
        tab.click("#set")
        tab.click("#confirm button[value=no]")
        assert served.ask("GET", "/curve", token=TOKEN)[1]["epoch"] == before
        tab.click("#set")
        tab.click("#confirm button[value=yes]")
        until(tab, "point.textContent.includes('this is the operating point')")
        told = served.ask("GET", "/curve", token=TOKEN)[1]
        assert told["epoch"] == told["points"][last]["epoch"] != before
        tab.evaluate("handle.value = 0; handle.dispatchEvent(new Event('input'))")
        until(tab, "!document.getElementById('set').disabled")
        tab.click("#set")
        tab.keyboard.press("Escape")
        until(tab, "!document.getElementById('confirm').open")
        assert served.ask("GET", "/curve", token=TOKEN)[1]["epoch"] == told["epoch"]
    assert problems == []
    assert all(url.startswith((f"http://127.0.0.1:{served.port}/", "data:")) for url in fetched)
