"""A kind that a plugin defines, at work: moderators refuse requests before the model sees them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from core.api import Chosen
from core_testing.served import served_app

EXAMPLES = Path(__file__).parents[3] / "examples" / "plugins"
CHAT = "/v1/chat/completions"


def declare_options(folder, monkeypatch):
    """Install what the example declares of options, as pip would."""
    project = tomllib.loads((EXAMPLES / "moderation" / "pyproject.toml").read_text())["project"]
    info = folder / "acme_core_moderation-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0.0\n")
    (section,) = project["entry-points"]["core.option_sections"].items()
    (info / "entry_points.txt").write_text("[core.option_sections]\n" + " = ".join(section) + "\n")
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def moderated(monkeypatch, tmp_path, llm, options, app_of):
    """`moderated(words, ..., **options)`: an application with the example's routes, and moderators with these words."""
    for name in ("moderation", "word_list"):
        monkeypatch.syspath_prepend(str(EXAMPLES / name / "src"))
    declare_options(tmp_path, monkeypatch)
    before = set(sys.modules)
    from acme_core_moderation.manifest import MODERATION
    from acme_core_moderation.routes import ModerationRoutes
    from acme_core_words.manifest import WORDS
    from acme_core_words.words import Words
    from core_plugin_openai.manifest import OPENAI
    from core_plugin_openai.routes import OpenAIRoutes

    def make(*lists, **given):
        asked = []

        def chosen(kind):
            asked.append(kind.group)
            return [Chosen("words", "'words' (acme 1.0)", WORDS, Words({"words": words})) for words in lists]

        plugins = {OPENAI: OpenAIRoutes({}), MODERATION: ModerationRoutes({})}
        app = served_app(llm, options(**given), plugins, chosen=chosen)
        assert asked == ["acme.moderators"]
        return app

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("acme_core_"):
            del sys.modules[name]


def ask(text):
    return {"model": "acme/tiny", "messages": [{"role": "user", "content": text}]}


@pytest.fixture
def client():
    from fastapi.testclient import TestClient

    return TestClient


def test_a_request_is_refused_before_it_is_generated(moderated, client, llm):
    api = client(moderated(["heist"], ["bank"]))
    refused = api.post(CHAT, json=ask("Plan a heist."))
    assert refused.status_code == 400 and "it has a word that is not allowed here" in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == "content_policy"
    assert api.post(CHAT, json=ask("My bank?")).status_code == 400 and llm.requests == []
    assert api.post(CHAT, json=ask("Hello")).status_code == 200 and len(llm.requests) == 1


def test_texts_can_be_judged_alone(moderated, client):
    api = client(moderated(["heist"]))
    answer = api.post("/v1/moderations", json={"input": ["a heist", "a walk"]}).json()
    assert [one["flagged"] for one in answer["results"]] == [True, False]
    assert answer["results"][0]["category_scores"] == {"word-list": 1.0}


def test_where_none_is_chosen_nothing_stands_in_the_way(moderated, client):
    api = client(moderated())
    assert api.post(CHAT, json=ask("Plan a heist.")).status_code == 200
    assert api.post("/v1/moderations", json={"input": "heist"}).json()["results"][0]["flagged"] is False


def test_refusals_are_counted_on_the_page_of_metrics(moderated, over_http):
    with over_http(moderated(["heist"])) as url, httpx.Client(base_url=url) as http:
        for text in ("Plan a heist.", "A heist?", "Hello"):
            http.post(CHAT, json=ask(text))
        page = http.get("/metrics").text
    assert "# TYPE acme_moderation_refusals_total counter\n" in page
    assert 'acme_moderation_refusals_total{category="word-list"} 2.0\n' in page
    assert 'core_http_requests_total{model_name="acme/tiny",route="/v1/chat/completions",status="200"} 1.0\n' in page


def test_its_own_options_decide(moderated, client, llm):
    body = {"input": ["a heist", "a walk"]}
    assert client(moderated(["heist"], moderation_texts=2)).post("/v1/moderations", json=body).status_code == 200
    refused = client(moderated(["heist"], moderation_texts=1)).post("/v1/moderations", json=body)
    assert refused.status_code == 400 and "input has 2 texts; 1 are allowed" in refused.text
