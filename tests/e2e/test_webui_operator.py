"""The operator view, and the chat page with the demo model, in a browser.

With CORE_SCREENSHOTS=1 the tests write the pictures of the docs.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PICTURES = bool(os.environ.get("CORE_SCREENSHOTS"))
IMAGES = Path(__file__).parents[2] / "docs" / "images"
KEY, ADMIN = "sk-user-0123456789", "sk-admin-0123456789"
FLAGS = ("--threads", "1", "--dtype", "bfloat16", "--max-model-len", "1024", "--num-blocks", "400", "--log-requests")
FLAGS += ("--route", "webui", "--api-key", KEY, "--admin-api-key", ADMIN)
QUESTION = "Write a Python function that returns the greatest common divisor of two numbers."
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def served(launch):
    return launch("smollm2", *FLAGS).wait_ready()


@pytest.fixture(scope="module")
def expect(browser):
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    return expect


@pytest.fixture
def view(tab, served, expect):
    """`view(**options)`: the view, opened with the admin key."""

    def view(**options):
        page = tab(f"{served.url}/ui/operator", **options)
        page.fill("#key", ADMIN)
        page.press("#key", "Enter")
        expect(page.locator("#operator")).to_be_visible()
        return page

    return view


@pytest.fixture
def act(expect):
    def act(page, button, answer="Yes", said=""):
        page.click(button)
        page.get_by_role("button", name=answer).click()
        expect(page.locator("#status")).to_contain_text(said)

    return act


def generate(served, count=1, tokens=24):
    with served.http(headers={"x-api-key": KEY}) as http:
        for _ in range(count):
            body = {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": tokens, "temperature": 0}
            assert http.post("/v1/chat/completions", json=body).status_code == 200


def shot(page, name):
    if PICTURES:
        IMAGES.mkdir(exist_ok=True)
        page.screenshot(path=IMAGES / f"{name}.png")


def some_traffic(page, served):
    """Half a minute of requests, for a picture with something in it."""
    if PICTURES:
        with ThreadPoolExecutor() as pool:
            running = [pool.submit(generate, served, count, 20 * count) for count in (2, 4, 6, 8)]
            while not all(one.done() for one in running):
                page.wait_for_timeout(500)
        page.wait_for_timeout(5000)


@pytest.fixture(scope="module", autouse=True)
def pictures():
    """What was written is small enough for the repository."""
    yield
    for picture in IMAGES.glob("*.png"):
        assert picture.stat().st_size < 150_000, picture


def test_the_chat_page_with_a_trained_model(tab, served, expect):
    page = tab(f"{served.url}/", viewport={"width": 1100, "height": 760})
    expect(page.locator("#alert")).to_contain_text("A key is needed")
    page.fill("#key", KEY)
    page.press("#key", "Enter")
    expect(page.locator("#title")).to_have_text("smollm2")
    page.click("#open-settings")
    expect(page.locator("#temperature-default")).to_have_text(re.compile(r"server: [\d.]+"))
    page.fill("#temperature", "0")
    page.fill("#max_tokens", "160" if PICTURES else "40")
    page.click("#close-settings")
    expect(page.locator("#prompt")).to_be_focused()
    page.fill("#prompt", QUESTION)
    page.press("#prompt", "Enter")
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("article.assistant .hljs-keyword").first).to_be_visible()
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".version")).to_have_text("2 of 2")
    expect(page.locator("#send")).to_be_visible()
    page.mouse.move(0, 0)
    shot(page, "chat")
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    shot(page, "chat-phone")


def test_only_the_admin_key_opens_the_view_and_it_goes_with_the_tab(tab, served, expect):
    page = tab(f"{served.url}/ui/operator")
    for key, said in (("nonsense", "The API key is wrong."), (KEY, "Admin routes need the admin key")):
        page.fill("#key", key)
        page.press("#key", "Enter")
        expect(page.locator("#wrong")).to_contain_text(said)
    assert not page.locator("#operator").is_visible()
    page.fill("#key", ADMIN)
    page.press("#key", "Enter")
    expect(page.locator("#operator")).to_be_visible()
    page.reload()
    expect(page.locator("#operator")).to_be_visible()
    assert page.evaluate("JSON.stringify(localStorage)").count(ADMIN) == 0
    other = tab(f"{served.url}/ui/operator", context=page.context)
    expect(other.locator("#entrance")).to_be_visible()
    page.click("#forget")
    page.reload()
    expect(page.locator("#entrance")).to_be_visible()


def test_figures_over_time(view, served, expect):
    page = view(viewport={"width": 1100, "height": 1250})
    some_traffic(page, served)
    expect(page.locator("figure canvas")).to_have_count(6)
    generate(served, 3)
    for title in ("Time to first token", "Time between two tokens", "Time to last token"):
        values = page.locator("figure", has_text=title).locator(".value")
        expect(values.first).to_have_text(re.compile(r"[\d.]+ ms"))
        expect(values.last).to_have_text(re.compile(r"[\d.]+ ms"))
    figure = page.locator("figure", has_text="Throughput")
    expect(figure.locator(".value").first).to_have_text(re.compile(r"[\d.]+ tokens/s"))
    assert re.search(r"Throughput: generated [\d.]+ tokens/s", figure.locator(".canvas").get_attribute("aria-label"))
    expect(page.locator("#facts")).to_contain_text("smollm2, up to 1024 tokens")
    expect(page.locator("#facts div", has_text="Finished")).to_contain_text(re.compile(r"\d\d?$"))
    expect(page.locator("#log")).to_contain_text("/v1/chat/completions 200")
    assert ADMIN not in page.content() and KEY not in page.content()
    shot(page, "operator")


def test_what_was_chosen_and_why(view, expect):
    page = view()
    choice = page.locator("#choices details", has_text="weight loader")
    expect(choice.locator("summary")).to_contain_text(": gguf, ")
    choice.locator("summary").click()
    row = choice.locator("tbody tr", has_text="safetensors")
    assert "cannot serve" in row.inner_text() and "no file named" in row.inner_text()
    assert page.inner_text("#faults") == "Nothing failed in a plugin."
    page.select_option("#level", "error")
    expect(page.locator("#log p")).to_have_count(0)


def test_actions_ask_first_and_say_what_they_did(view, act, served, expect):
    page = view()
    act(page, "#pause", "Cancel")
    with served.http(headers={"x-api-key": ADMIN}) as http:
        assert http.get("/is_paused").json() == {"is_paused": False}
        act(page, "#pause", said="The server is paused.")
        expect(page.locator("#facts")).to_contain_text("paused")
        assert http.get("/is_paused").json() == {"is_paused": True} and page.locator("#pause").is_disabled()
        act(page, "#resume", said="serves again")
        assert http.get("/is_paused").json() == {"is_paused": False}
    act(page, "#reset", said="The prefix cache is empty.")
    act(page, "#profile-start", said="The profile is running.")
    expect(page.locator("#profile-stop")).to_be_enabled()
    generate(served)
    act(page, "#profile-stop", said="The profile has ended.")
    rows = page.locator("#profile tbody tr")
    assert "forward" in page.inner_text("#profile") and rows.count() >= 5


def test_axe_finds_nothing_and_a_phone_shows_all_of_it(view, axe, expect):
    page = view()
    expect(page.locator("#choices details").first).to_be_visible()
    expect(page.locator("#log p").first).to_be_visible()
    for summary in page.locator("#choices summary").all()[:3]:
        summary.click()
    for size in ({"width": 1100, "height": 900}, PHONE):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert axe(page) == [], (scheme, size)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    page.click("#drain")
    assert axe(page) == []
    page.get_by_role("button", name="Cancel").click()
    page.click("#forget")
    assert axe(page) == []


def test_drain_ends_the_server(view, act, served, expect):
    page = view()
    act(page, "#drain", said="The server ends: 0 in flight")
    assert served.process.wait(20) == 0
    assert "ends by an admin request" in served.stderr
    expect(page.locator("#gone")).to_have_text("The server does not answer.")
