"""A sampling parameter that a plugin declares once is known to bodies, `LLM`, flags, checks and the worker."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from core_plugin_anthropic.manifest import ANTHROPIC
from core_plugin_anthropic.routes import AnthropicRoutes
from core_plugin_generate.manifest import GENERATE
from core_plugin_generate.routes import GenerateRoutes
from core_plugin_ollama.manifest import OLLAMA
from core_plugin_ollama.routes import OllamaRoutes
from core_plugin_openai.manifest import OPENAI, RESPONSES
from core_plugin_openai.responses.routes import ResponsesRoutes
from core_plugin_openai.routes import OpenAIRoutes

from core import LLM, AsyncLLM, SamplingParams
from core.api import PluginError, RequestError
from core.cli.main import main
from core.config.resolved import Options
from core.selection.resolver import resolve
from core_testing.served import served_app

EXAMPLE = str(Path(__file__).parents[2] / "examples/plugins/top_n_sigma")
OPTIONS = {"dtype": "float32", "num_blocks": 60, "max_num_seqs": 4}
CHOSEN = {**OPTIONS, "logits_processor": ["top_n_sigma"]}
DRAWN = SamplingParams(temperature=1.0, seed=3, max_tokens=8, ignore_eos=True)
LEAST = {"top_n_sigma": 0.001}
"""Nothing but the best token is left."""

TALK = [{"role": "user", "content": "Hi"}]
BODY = {"temperature": 1.0, "seed": 3, "ignore_eos": True}
ROUTES = {
    OPENAI: OpenAIRoutes,
    RESPONSES: ResponsesRoutes,
    ANTHROPIC: AnthropicRoutes,
    OLLAMA: OllamaRoutes,
    GENERATE: GenerateRoutes,
}


@pytest.fixture
def sigma(plugins):
    plugins(EXAMPLE)
    yield
    for name in [name for name in sys.modules if name.startswith("acme_core_top_n_sigma")]:
        del sys.modules[name]


def _ids(output):
    return output.outputs[0].token_ids


def test_a_request_in_python_says_it(sigma, llama, prompt):
    with LLM(llama, **CHOSEN) as llm:
        given = [DRAWN.replace(temperature=0.0), DRAWN.replace(extra_args=LEAST), DRAWN]
        best, least, drawn = llm.generate([prompt(9)] * 3, given)
        for value, said in ((-1, r"in \[0, 100\], got -1"), ("1", "a finite number, got '1'"), (True, "got True")):
            with pytest.raises(RequestError, match=f"top_n_sigma must be .*{said}") as refusal:
                llm.generate([prompt(9)], DRAWN.replace(extra_args={"top_n_sigma": value}))
            assert refusal.value.param == "top_n_sigma"
    assert _ids(least) == _ids(best) != _ids(drawn)


def test_without_the_plugin_nobody_knows_it(sigma, llama, prompt):
    with LLM(llama, **OPTIONS) as llm, pytest.raises(RequestError, match="no plugin here reads 'top_n_sigma'"):
        llm.generate([prompt(9)], DRAWN.replace(extra_args=LEAST))


def test_rows_at_the_default_are_never_asked_about(sigma, llama, prompt, monkeypatch):
    from acme_core_top_n_sigma.processor import TopNSigma

    asked, numbers = [], {}

    def admit(self, row, params, prompt):
        asked.append(params.extra_args)
        numbers.update({name: array.copy() for name, array in {"top_n_sigma": self._n}.items()}, row=row)
        return True

    monkeypatch.setattr(TopNSigma, "admit", admit)
    with LLM(llama, **CHOSEN) as llm:
        zero = DRAWN.replace(extra_args={"top_n_sigma": 0})
        llm.generate([prompt(9)] * 3, [DRAWN, zero, DRAWN.replace(extra_args={"top_n_sigma": 2})])
    assert asked == [{"top_n_sigma": 2}]
    assert numbers["top_n_sigma"].dtype == np.float64 and numbers["top_n_sigma"][numbers["row"]] == 2.0


def test_a_model_may_say_what_holds_where_a_request_does_not(sigma):
    """Not this plugin's, which leaves that out: a field that its declaration lets a model say."""
    from acme_core_top_n_sigma.manifest import TOP_N_SIGMA

    from core.api import CheckpointInfo
    from core.frontend.model import default_params
    from core.frontend.sampling import model_defaults, sampling_params

    (field,) = TOP_N_SIGMA.fields
    told = CheckpointInfo.__new__(CheckpointInfo)
    object.__setattr__(told, "generation_config", {"top_n_sigma": 1.5, "top_p": 0.9})
    assert default_params(told, {field.name: field}).extra_args is None
    defaults = model_defaults(default_params(told, {field.name: field.replace(from_model=True)}))
    assert (defaults["top_p"], defaults["top_n_sigma"]) == (0.9, 1.5)
    assert sampling_params({}, defaults, 99).extra_args == {"top_n_sigma": 1.5}
    assert sampling_params({"extra_args": {"a": 1, "top_n_sigma": 2}}, defaults, 99).extra_args == {
        "a": 1,
        "top_n_sigma": 2,
    }
    assert sampling_params({"top_n_sigma": 3, "extra_args": {"top_n_sigma": 2}}, defaults, 99).extra_args == {
        "top_n_sigma": 3
    }


@pytest.fixture
def post(sigma, llama):
    """Return a function that sends bodies to a server with the plugin and returns its answers."""

    def make(*asked):
        async def go():
            llm = await AsyncLLM.start(llama, in_process=True, **CHOSEN)
            try:
                options = Options.model_validate({"model": {"model": llama}})
                app = served_app(llm, options, {spec: kind({}) for spec, kind in ROUTES.items()})
                transport = httpx.ASGITransport(app)
                async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                    return [await client.post(path, json=body) for path, body in asked]
            finally:
                await llm.close()

        return asyncio.run(go())

    return make


APIS = {
    "/v1/chat/completions": lambda more: {"messages": TALK, "max_tokens": 8, **BODY, **more},
    "/v1/completions": lambda more: {"prompt": "Hi", "max_tokens": 8, **BODY, **more},
    "/v1/responses": lambda more: {"input": "Hi", "max_output_tokens": 8, **BODY, **more},
    "/v1/messages": lambda more: {"messages": TALK, "max_tokens": 8, "model": "llama", **BODY, **more},
    "/api/generate": lambda more: {
        "model": "llama",
        "prompt": "Hi",
        "stream": False,
        "options": {"num_predict": 8, "temperature": 1.0, "seed": 3, **more},
    },
    "/generate": lambda more: {
        "text": "Hi",
        "sampling_params": {"max_new_tokens": 8, "temperature": 1.0, "sampling_seed": 3, "ignore_eos": True, **more},
    },
    "/completion": lambda more: {"prompt": "Hi", "n_predict": 8, **BODY, **more},
}
NAMED = {"/api/generate": "options.top_n_sigma"}


TEXT = {
    "/v1/chat/completions": lambda told: told["choices"][0]["message"]["content"],
    "/v1/completions": lambda told: told["choices"][0]["text"],
    "/v1/responses": lambda told: told["output"][0]["content"][0]["text"],
    "/v1/messages": lambda told: told["content"][0]["text"],
    "/api/generate": lambda told: told["response"],
    "/generate": lambda told: told["text"],
    "/completion": lambda told: told["content"],
}


@pytest.mark.parametrize("path", APIS)
def test_every_api_takes_it_by_its_name(post, path):
    body = APIS[path]
    greedy = body({"temperature": 0.0})
    answers = post((path, greedy), (path, body(LEAST)), (path, body({})), (path, body({"top_n_sigma": 101})))
    assert [one.status_code for one in answers] == [200, 200, 200, 400], [one.text for one in answers]
    best, least, drawn = (TEXT[path](one.json()) for one in answers[:3])
    assert least == best != drawn
    assert "top_n_sigma" not in answers[1].headers.get("x-core-ignored-fields", "")
    assert f"{NAMED.get(path, 'top_n_sigma')} must be in [0, 100], got 101" in answers[3].text


def test_openai_names_the_field_at_fault(post):
    path = "/v1/chat/completions"
    wrong, known, vllm = post(
        (path, APIS[path]({"top_n_sigma": "much"})),
        (path, APIS[path]({**LEAST, "nothing": 1})),
        (path, APIS[path]({"vllm_xargs": {"top_n_sigma": -1}})),
    )
    assert wrong.json()["error"]["param"] == vllm.json()["error"]["param"] == "top_n_sigma"
    assert "must be a finite number, got 'much'" in wrong.json()["error"]["message"]
    assert known.headers["x-core-ignored-fields"] == "nothing"


@pytest.fixture
def server():
    """A server of a few lines: its address, and the bodies that it was sent."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer("application/json", {"data": [{"id": "m"}]}, "%s")

        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            piece = {"choices": [{"index": 0, "delta": {"content": "x"}, "text": "x", "finish_reason": "stop"}]}
            self._answer("text/event-stream", piece, "data: %s\n\ndata: [DONE]\n\n")

        def _answer(self, kind, told, form):
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write((form % json.dumps(told)).encode())

        def log_message(self, *args): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", sent
        http.shutdown()


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_commands_have_a_flag_of_it(sigma, command, server, capsys):
    url, sent = server
    assert main([command, "--url", url, "-q", "hi", "--top-n-sigma", "1.5", "--min-p", "0.1"]) == 0
    assert (sent[0]["top_n_sigma"], sent[0]["min_p"]) == (1.5, 0.1)
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--top-n-sigma X Keep the tokens whose logit" in told and "logits processor 'top_n_sigma'" in told


def test_info_shows_it(sigma, capsys):
    assert main(["plugins", "info", "logits:top_n_sigma"]) == 0
    told = capsys.readouterr().out
    assert "field top_n_sigma" in told and "number from 0 to 100, default 0.0: Keep the tokens" in told


TWINS = """
from core.api import LogitsSpec, ParticipantSpec, SamplingField

def spec(name, **more):
    return LogitsSpec(name=name, impl="twins:Nothing", api=1, summary="", **more)

FIELD = SamplingField(name="x", type="number", meaning="x", default=0.0)
__core_drivers__ = [spec("one", fields=(FIELD,)), spec("two", fields=(FIELD,)), spec("reads", args=("x",))]
"""


@pytest.mark.parametrize("other", ["two", "reads"])
def test_two_plugins_with_one_name_are_refused(llama, tmp_path, other):
    (tmp_path / "twins.py").write_text(TWINS)
    select = {"logits_processor": ["one", other], "plugin_file": [str(tmp_path / "twins.py")]}
    options = Options.model_validate({"model": {"model": llama}, "select": select})
    with pytest.raises(PluginError, match=f"CORE-P165 .*'one' .* and '{other}' .*sampling parameter 'x'"):
        resolve(options)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ('name="min_p", type="number", default=0.0', "min_p is a sampling parameter of core"),
        ('name="x", type="texts"', "x is no number or truth value with a default"),
        ('name="x", type="number"', "x is no number or truth value with a default"),
        ('name="x", type="number", default=2.0, high=1.0', r"default: x must be in \[-inf, 1\], got 2.0"),
        ('name="x-y", type="number", default=2.0', "'x-y' is no identifier in lower case"),
    ],
)
def test_what_cannot_be_declared_is_refused_with_the_plugin(llama, tmp_path, field, said):
    text = TWINS.replace('name="x", type="number", meaning="x", default=0.0', f'meaning="x", {field}')
    (tmp_path / "twins.py").write_text(text)
    select = {"logits_processor": ["one"], "plugin_file": [str(tmp_path / "twins.py")]}
    options = Options.model_validate({"model": {"model": llama}, "select": select})
    with pytest.raises(PluginError, match=said):
        resolve(options)
