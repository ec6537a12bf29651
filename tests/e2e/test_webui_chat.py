"""The chat page in a browser, over a server whose model says what the user's last message says."""

from __future__ import annotations

import json
import re

import pytest

FLAGS = ("--threads", "1", "--dtype", "float32", "--num-blocks", "2000", "--served-model-name", "scripted")
FLAGS += ("--tool-parser", "hermes", "--reasoning-parser", "qwen3", "--route", "webui")
DOT = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYPhfDwACggF/"
DOT += "yWKGOwAAAABJRU5ErkJggg=="
PHONE = {"viewport": {"width": 360, "height": 740}}
RICH = r"""<think>
Let me *see*.
</think>

# Title

So \(a_1 = \frac{b}{c}\), and

\[
\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}
\]

```python
def f(x: int) -> str:
    return "a very long line of code that does not fit on a phone" + str(x)  # and a comment
```

| name | value | a column that does not fit on a phone, | nor does this one |
|---|--:|---|---|
| **x** | `1` | 2 | 3 |

- [x] done <b>no markup</b> <img src=x onerror="window.pwned = 1">
- [a link](https://example.org) [none](javascript:alert(1)) ![cat](https://example.org/cat.png)
- ![dot](DOT)
""".replace("DOT", DOT)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOLS = '[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]'


@pytest.fixture(scope="module")
def url(launch, scripted):
    checkpoint, plugin = scripted
    return f"{launch(checkpoint, *FLAGS, PYTHONPATH=plugin).wait_ready().url}/"


@pytest.fixture(scope="module")
def expect(browser):
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    return expect


@pytest.fixture
def ask(expect):
    def ask(page, text):
        page.fill("#prompt", text)
        page.press("#prompt", "Enter")
        expect(page.locator("#status")).to_contain_text("Answered.")

    return ask


@pytest.fixture
def set_up(expect):
    """`set_up(page, name=text)` changes settings."""

    def set_up(page, **settings):
        if not page.locator("#settings").is_visible():
            page.click("#open-settings")
        for name, text in settings.items():
            page.fill(f"#{name}", text)
        page.click("#close-settings")
        expect(page.locator("#prompt")).to_be_focused()  # they are taken over, which is not at once

    return set_up


@pytest.fixture
def rich(tab, url, ask, expect):
    """`rich(**options)`: a page that shows everything an answer can have."""

    def rich(**options):
        page = tab(url, **options)
        ask(page, RICH)
        expect(page.locator(".math.drawn")).to_have_count(2)
        expect(page.locator("code .hljs-keyword").first).to_be_visible()
        return page

    return rich


def said(page):
    return [text.strip() for text in page.locator("article .content").all_inner_texts()]


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_markdown_formulas_and_code_are_drawn_and_nothing_of_it_is_markup(rich):
    page = rich()
    answer = page.locator("article.assistant")
    assert answer.locator(".content h1").inner_text() == "Title"
    assert answer.locator("math mfrac").count() == 2 and answer.locator("math[display=block]").count() == 1
    assert answer.locator("th").all_inner_texts()[:2] == ["name", "value"]
    assert "done <b>no markup</b> <img" in answer.inner_text()
    assert page.evaluate("window.pwned") is None and page.locator("#log b, #log script").count() == 0
    assert answer.locator("a").evaluate_all("all => all.map((one) => one.href)") == [
        "https://example.org/",
        "https://example.org/cat.png",
    ]
    assert [src[:15] for src in answer.locator("img").evaluate_all("all => all.map((one) => one.src)")] == [
        "data:image/png;"
    ]
    assert not answer.locator(".thought").is_visible()
    answer.locator("summary").first.click()
    assert answer.locator(".thought em").inner_text() == "see"


def test_libraries_of_formulas_and_colours_are_loaded_when_they_are_needed(tab, url, ask, expect):
    page = tab(url)
    loaded = "() => performance.getEntriesByType('resource').map(({ name }) => name.split('/').at(-1))"
    assert not [name for name in page.evaluate(loaded) if re.match(r"(math|code|plots)-", name)]
    ask(page, "so \\(x^2\\)")
    expect(page.locator("math")).to_be_visible()
    assert [name[:5] for name in page.evaluate(loaded) if re.match(r"(math|code|plots)-", name)] == ["math-"]


def test_text_becomes_markup_through_the_sanitizer_alone(browser, url):
    with browser.new_page() as page:  # not a `tab`: the console says what is refused
        page.goto(url)
        tried = "() => { try { document.body.innerHTML = 'x'; return 'made'; } catch (error) { return error.name; } }"
        assert page.evaluate(tried) == "TypeError"  # trusted types


def test_branches(tab, url, ask):
    page = tab(url)
    ask(page, "one")
    ask(page, "two")
    page.locator("article.user").first.get_by_role("button", name="Edit this message").click()
    assert page.input_value("#prompt") == "one"
    ask(page, "uno")
    assert said(page) == ["uno", "uno"] and page.locator(".version").all_inner_texts() == ["2 of 2"]
    page.get_by_role("button", name="Previous version").click()
    assert said(page) == ["one", "one", "two", "two"]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Next version"
    assert page.inner_text("#status") == "Version 1 of 2."
    page.keyboard.press("Alt+Shift+KeyR")
    page.locator(".version").nth(1).wait_for()
    assert page.locator(".version").all_inner_texts() == ["1 of 2", "2 of 2"]
    page.reload()
    assert said(page) == ["one", "one", "two", "two"]
    page.keyboard.press("Alt+Shift+ArrowLeft")
    assert page.locator(".version").all_inner_texts() == ["1 of 2", "1 of 2"]


def test_a_call_is_folded_and_its_result_is_sent(tab, url, ask, set_up, expect):
    page = tab(url)
    set_up(page, tools=TOOLS)
    ask(page, CALL)
    call = page.locator("details.call")
    assert call.locator("summary").inner_text() == "Calls weather" and not call.locator("pre").is_visible()
    page.get_by_label("Result of weather").fill("It rains.")
    page.get_by_role("button", name="Send results").click()
    expect(page.locator("article.assistant")).to_have_count(2)
    expect(page.locator("#status")).to_contain_text("Answered.")
    assert said(page)[-1] == "It rains."


def test_a_schema_holds_the_answer_and_a_broken_one_is_told(tab, url, ask, set_up, expect):
    page = tab(url)
    page.click("#open-settings")
    page.fill("#schema", "{")
    assert "not JSON" in page.inner_text("#schema-wrong")
    page.click("#close-settings")
    assert page.locator("#settings").is_visible()
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    set_up(page, schema=json.dumps(schema))
    assert page.locator("#held").is_visible()
    ask(page, '{"n": 7}')
    expect(page.locator("article.assistant code .hljs-attr")).to_have_text('"n"')
    assert json.loads(page.locator("article.assistant code").inner_text()) == {"n": 7}


def test_settings_name_the_servers_defaults(tab, url, set_up, expect):
    page = tab(url)
    page.click("#open-settings")
    for name, default in (("temperature", "server: 1"), ("top_p", "server: 1"), ("max_tokens", "as many as fit")):
        expect(page.locator(f"#{name}-default")).to_have_text(default)
    set_up(page, temperature="0.5")
    with page.expect_request("**/v1/chat/completions") as request:
        page.fill("#prompt", "hi")
        page.press("#prompt", "Enter")
    assert request.value.post_data_json["temperature"] == 0.5 and "top_p" not in request.value.post_data_json


def test_conversations_go_to_a_file_and_back(tab, url, ask, tmp_path):
    page = tab(url)
    ask(page, "one")
    page.get_by_role("button", name="Regenerate").click()
    page.locator(".version").wait_for()
    with page.expect_download() as download:
        page.click("#export-one")
    file = tmp_path / "conversations.json"
    download.value.save_as(file)
    found = json.loads(file.read_text())
    assert (found["format"], found["version"], len(found["conversations"])) == ("core-conversations", 2, 1)
    other = tab(url)
    other.set_input_files("#file", file)
    other.get_by_role("button", name="one", exact=True).click()
    assert said(other) == ["one", "one"] and other.locator(".version").inner_text() == "2 of 2"


def test_an_answer_goes_on_over_a_reload_and_in_another_tab(tab, url, expect):
    text = " ".join(str(number) for number in range(700))
    page = tab(url)
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")
    expect(page.locator("article.assistant .content")).to_contain_text("20 21")
    page.reload()
    assert page.locator("#stop").is_visible()
    other = tab(url, context=page.context)
    expect(other.locator("article.assistant .content")).to_contain_text("20 21")
    for one in (page, other):
        expect(one.locator("#send")).to_be_visible()
        assert said(one)[1] == text


# -- who uses it -------------------------------------------------------------------------------------------------------


def test_everything_can_be_done_by_keyboard(tab, url, expect):
    page = tab(url)
    focused = "() => document.activeElement.id"
    assert page.evaluate(focused) == "prompt"
    page.keyboard.insert_text("x" * 3000)
    page.keyboard.press("Enter")
    expect(page.locator("article.assistant .content")).to_contain_text("xx")
    page.keyboard.press("Escape")
    expect(page.locator("article.assistant .note")).to_have_text("Stopped: you ended the answer here.")
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.press("Alt+Shift+KeyK")
    rows = page.locator("#key-rows tr")
    assert page.locator("#keys").is_visible() and rows.count() == 12
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).not_to_be_visible()
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.press("Alt+Shift+KeyE")
    assert page.input_value("#prompt") == "x" * 3000
    page.keyboard.press("Escape")
    assert page.input_value("#prompt") == ""
    page.keyboard.press("Alt+Shift+KeyS")
    assert page.evaluate(focused) == "model"
    page.keyboard.press("Escape")
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.press("Alt+Shift+KeyN")
    assert page.locator("article").count() == 0
    seen = set()
    for _ in range(20):  # Tab leads around and out again: no trap
        page.keyboard.press("Tab")
        seen.add(page.evaluate(focused))
    assert {"new", "import", "theme", "open-settings", "prompt", "send"} <= seen


def test_an_answer_is_read_out_block_by_block(tab, url, ask):
    page = tab(url)
    page.evaluate(
        "() => { window.heard = []; new MutationObserver((all) => all.forEach(({ addedNodes }) => addedNodes.forEach("
        "(node) => heard.push(node.textContent)))).observe(document.getElementById('spoken'), { childList: true }); }"
    )
    paragraphs = [f"Paragraph {number}. {'word ' * 40}".strip() for number in range(4)]
    ask(page, "\n\n".join(paragraphs))
    assert [text.strip() for text in page.evaluate("heard")] == paragraphs  # each once, each complete
    spoken = page.locator("#spoken")
    assert spoken.get_attribute("role") == "log" and page.locator("#status").get_attribute("role") == "status"


@pytest.mark.parametrize("screen", [{}, PHONE], ids=["desk", "phone"])
def test_axe_finds_nothing(rich, axe, screen):
    page = rich(**screen)
    page.locator("article.assistant summary").first.click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert axe(page) == [], scheme
        for button, dialog in (("#open-settings", "#settings"), ("#open-keys", "#keys")):
            page.click(button)
            page.locator(dialog).wait_for()
            assert axe(page) == [], (scheme, dialog)
            page.keyboard.press("Escape")
    if screen:
        page.click("#menu")
        assert axe(page) == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(rich):
    page = rich(**PHONE)
    wide = "() => [document.documentElement.scrollWidth, document.getElementById('log').scrollWidth]"
    assert max(page.evaluate(wide)) <= 360
    assert not page.locator("#sidebar").is_visible()
    page.click("#menu")
    assert page.evaluate("document.activeElement.id") == "new"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "menu" and not page.locator("#sidebar").is_visible()
    page.click("#open-settings")
    assert page.evaluate("() => document.getElementById('settings').scrollWidth") <= 360


def test_dark_and_light(tab, url):
    page = tab(url, color_scheme="dark")
    back = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(back) == "rgb(21, 23, 28)"
    page.click("#theme")
    assert page.evaluate(back) == "rgb(255, 255, 255)"
    page.reload()
    assert page.evaluate(back) == "rgb(255, 255, 255)"


def test_a_server_without_an_admin_key_says_so_in_the_operator_view(tab, url, expect):
    page = tab(f"{url}ui/operator")
    expect(page.locator("#wrong")).to_contain_text("start it with --admin-api-key")
