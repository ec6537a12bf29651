"""Every way in which a schema comes: objects are closed by all of them, and a server may leave them open."""

from __future__ import annotations

import json

import pytest

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SAID = '{"n": 7, "invented": 1}'
END = "<|emit|>"
TOOL = {"name": "f", "parameters": SCHEMA}
TAG = {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</f>"}
OBJECT = {"type": "json_object", "schema": SCHEMA}
FORMED = {"name": "s", "schema": SCHEMA}
ROUTES = ("--route", "generate", "--route", "ollama")
FLAGS = ("--threads", "1", "--dtype", "float32", "--served-model-name", "scripted", "--max-model-len", "1024", *ROUTES)
SERVERS = {
    "llguidance": ("--structured-output", "llguidance"),
    "xgrammar": ("--structured-output", "xgrammar"),
    "xgrammar, open": ("--structured-output", "xgrammar", "--additional-properties"),
}


@pytest.fixture(scope="module", params=SERVERS)
def served(request, launch, scripted):
    checkpoint, plugin = scripted
    server = launch(checkpoint, *FLAGS, *SERVERS[request.param], PYTHONPATH=plugin).wait_ready()
    with server.http() as http:
        yield http, "open" in request.param


def chat(text=SAID, **fields):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 80, **fields}


def completion(**fields):
    return "/v1/completions", {"prompt": SAID + END, "max_tokens": 40, **fields}


def called(choice, said=SAID):
    return chat(said, tools=[{"type": "function", "function": TOOL}], tool_choice=choice)


NAMED = {"type": "function", "function": {"name": "f"}}
TEXT = {"input": SAID, "max_output_tokens": 40}
SAMPLED = {"max_new_tokens": 40}
WAYS = {
    "json_schema": chat(response_format={"type": "json_schema", "json_schema": FORMED}),
    "json_schema, strict": chat(response_format={"type": "json_schema", "json_schema": {**FORMED, "strict": True}}),
    "json_object with a schema": chat(response_format=OBJECT),
    "structural_tag": chat(
        f"<f>{SAID}</f>",
        response_format={"type": "structural_tag", "format": {"type": "sequence", "elements": [TAG]}},
    ),
    "structured_outputs": chat(structured_outputs={"json": SCHEMA}),
    "guided_json": completion(guided_json=SCHEMA),
    "a schema as text": completion(structured_outputs={"json": json.dumps(SCHEMA)}),
    "llama.cpp's field": chat(json_schema=SCHEMA),
    "llama.cpp's field of completions": completion(json_schema=SCHEMA),
    "a named call": called(NAMED),
    "a required call": called("required", f'[{{"name": "f", "parameters": {SAID}}}]'),
    "responses": ("/v1/responses", {**TEXT, "text": {"format": {"type": "json_schema", **FORMED}}}),
    "responses, json_object": (
        "/v1/responses",
        {**TEXT, "text": {"format": OBJECT}},
    ),
    "messages": (
        "/v1/messages",
        {
            "model": "scripted",
            "max_tokens": 40,
            "messages": [{"role": "user", "content": SAID}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
    "Ollama's chat": (
        "/api/chat",
        {
            "model": "scripted",
            "stream": False,
            "messages": [{"role": "user", "content": SAID}],
            "format": SCHEMA,
            "options": {"num_predict": 40},
        },
    ),
    "Ollama's generate": (
        "/api/generate",
        {"model": "scripted", "stream": False, "prompt": SAID, "format": SCHEMA, "options": {"num_predict": 40}},
    ),
    "SGLang": ("/generate", {"text": SAID + END, "sampling_params": {**SAMPLED, "json_schema": json.dumps(SCHEMA)}}),
    "llama.cpp": ("/completion", {"prompt": SAID + END, "n_predict": 40, "json_schema": SCHEMA}),
}


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("way", WAYS)
def test_objects_are_closed_unless_the_server_leaves_them_open(served, way):
    """The model says what it is told: an invented property as well, where the schema lets it."""
    http, is_open = served
    path, body = WAYS[way]
    answer = http.post(path, json={"temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    said = {name: value for name, value in answer.json().items() if name != "prompt"}
    produced = json.dumps(said).replace("\\", "").replace(" ", "")
    assert '{"n":7' in produced and ("invented" in produced) == is_open, answer.text


@pytest.mark.covers("GRAM-01")
def test_a_request_decides_for_itself(served):
    http, _ = served
    for wanted in (True, False):
        path, body = chat(structured_outputs={"json": SCHEMA, "disable_additional_properties": wanted})
        answer = http.post(path, json={"temperature": 0, **body}).json()
        assert ("invented" in answer["choices"][0]["message"]["content"]) != wanted
    path, body = chat(json_schema={**SCHEMA, "additionalProperties": {"type": "integer"}})
    answer = http.post(path, json={"temperature": 0, **body}).json()
    assert json.loads(answer["choices"][0]["message"]["content"]) == json.loads(SAID)


GBNF = r"""
# a list, as llama.cpp's own example has it
root ::= item{1,3}
item ::= "- " [^\u0000-\u001f\u2028]+ "\n"
"""


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
def test_grammars_of_llama_cpp_on_every_route(served, path):
    http, _ = served
    said = "- one\n- two\n- three\n- four\n"
    prompt = {"messages": [{"role": "user", "content": said}]} if "chat" in path else {"prompt": said + END}
    fields = {**prompt, "grammar": GBNF, "max_tokens": 40, "temperature": 0}
    answer = http.post(path, json=fields).json()
    choice = answer["choices"][0] if "choices" in answer else {"text": answer["content"]}
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    assert text == "- one\n- two\n- three\n"
    refused = http.post(path, json={**fields, "json_schema": SCHEMA})
    error = refused.json()["error"]
    assert refused.status_code == 400 and "cannot be used together with" in error["message"]
    lazy = http.post(path, json={**fields, "grammar_lazy": True})
    assert lazy.status_code == 400 and "grammar_lazy" in lazy.json()["error"]["message"]
