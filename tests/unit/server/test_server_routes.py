"""Models, tokens, probes and self-description."""

from dataclasses import dataclass

from core_plugin_admin.routes import ROUTES as ADMIN

from core import __version__
from core.api import SamplingField
from core.server.health import ROUTES as OPEN


@dataclass
class Report:
    def to_dict(self):
        return {"group": "core.platforms", "chosen": "cpu"}


def test_models(api, llm):
    body = api.get("/v1/models").json()
    assert [model["id"] for model in body["data"]] == [llm.model_name]
    assert body["data"][0]["max_model_len"] == 512
    assert api.get(f"/v1/models/{llm.model_name}").json() == body["data"][0]


def test_tokenize_and_back(api):
    body = api.post("/tokenize", {"prompt": "hé", "return_token_strs": True}).json()
    assert body["tokens"] == [256, 104, 195, 169]
    assert (body["count"], body["max_model_len"]) == (4, 512)
    assert body["token_strs"][:2] == ["<256>", "h"]
    assert api.post("/tokenize", {"prompt": "a", "add_special_tokens": False}).json()["tokens"] == [97]
    assert api.post("/detokenize", {"tokens": body["tokens"]}).json() == {"prompt": "<s>hé"}
    assert api.post("/detokenize", {"tokens": []}).json() == {"prompt": ""}


def test_tokenize_of_a_conversation_is_what_chat_sends(api, llm):
    messages = [{"role": "user", "content": "Hi"}]
    tokens = api.post("/tokenize", {"messages": messages}).json()["tokens"]
    api.post("/v1/chat/completions", {"messages": messages})
    assert llm.requests[0]["ids"] == tokens


def test_tokenize_refuses(api):
    for body in ({}, {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, {"prompt": 5}):
        assert api.post("/tokenize", body).status_code == 400
    for tokens in ([300], [-1], ["a"], None, [1.5], [True]):
        response = api.post("/detokenize", {"tokens": tokens})
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith("tokens")


def test_a_long_text_is_tokenized_beside_the_loop(api):
    assert api.post("/tokenize", {"prompt": "x" * 60_000}).json()["count"] == 60_001


def test_probes(api, llm):
    assert (api.get("/health").status_code, api.get("/ready").status_code) == (200, 200)
    llm.healthy = False
    assert (api.get("/health").status_code, api.get("/ready").status_code) == (200, 503)
    llm.healthy = True
    api.app.state.core.lifecycle.draining = True
    response = api.get("/ready")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
    assert response.headers["retry-after"]


def test_version_and_plugins(build, llm):
    api = build(llm, reports=[Report(), {"group": "x"}])
    assert api.get("/version").json() == {"version": __version__}
    selections = api.get("/core/plugins").json()["selections"]
    assert selections == [{"group": "core.platforms", "chosen": "cpu"}, {"group": "x"}]


def test_what_failed_in_plugins_is_told_beside_how_they_were_selected(build, llm):
    api = build(llm)
    api.app.state.core.faults = lambda: [{"group": "core.stat_sinks", "name": "slow", "faults": 1}]
    assert [one["name"] for one in api.get("/core/plugins").json()["faults"]] == ["slow", "odd"]
    llm.healthy = False
    assert [one["name"] for one in api.get("/core/plugins").json()["faults"]] == ["slow"]


def test_the_schema_names_every_request_field(api):
    schema = api.get("/openapi.json").json()
    assert "$ref" not in str(schema)
    body = schema["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    fields = body["content"]["application/json"]["schema"]["properties"]
    assert {"messages", "stream_options", "top_k", "cache_salt"} <= set(fields)


def test_the_schema_has_sampling_parameters_as_they_are_declared(build, llm):
    llm.plugin_fields = {
        "x": SamplingField(name="x", type="integer", meaning="An x.", default=2, low=0, above_low=True)
    }
    paths = build(llm).get("/openapi.json").json()["paths"]
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        fields = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert fields["x"] == {"description": "An x.", "type": "integer", "exclusiveMinimum": 0, "default": 2}
        assert (fields["top_p"]["exclusiveMinimum"], fields["top_p"]["maximum"]) == (0.0, 1.0)
        assert fields["top_k"]["description"].startswith("Keep the k most likely")


def test_request_log(build, llm, caplog):
    api = build(llm, log_requests=True)
    with caplog.at_level("INFO", logger="core.server"):
        api.post("/v1/completions", {"prompt": "secret"}, headers={"x-request-id": "r1"})
    line = caplog.records[-1].getMessage()
    assert line.startswith("/v1/completions 200 ")
    assert line.endswith(" r1")
    assert "secret" not in caplog.text


def test_the_tables_name_every_route_once_and_admin_paths_have_no_parameters(api):
    """The gate knows the admin scope by the path alone, before any route is matched."""
    served = [(method, route.path) for route in api.app.routes for method in route.methods]
    assert len(set(served)) == len(served) > 50
    routes = [*OPEN, *ADMIN]
    assert len({(route.method, route.path) for route in routes}) == len(routes)
    assert not {route.path for route in ADMIN} & {route.path for route in OPEN}
    assert not [route.path for route in ADMIN if "{" in route.path]
