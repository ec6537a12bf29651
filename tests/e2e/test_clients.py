"""Every client of docs/clients.md, from its own package and with the settings of that page, against one server.

The model says what the last message says, so the script of each turn is the question or the result of a tool
(`clients/script.py`). The template joins texts, as many do: what a client sends back that is no text fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "clients.md"
CLIENTS, JS = HERE / "clients", HERE / "js"
# Those that exclude the versions of others are in an environment that `make test-all` makes.
APART = Path(sys.prefix) / "clients" / "bin" / "python"
CHECKS = ("whole", "streamed", "refused", "loop", "loop streamed", "structured")

TEMPLATE = """{%- set seen = namespace(calls=0) -%}
{%- for message in messages if message.role != 'system' -%}
    {%- for call in message.tool_calls or [] -%}
        {%- set seen.calls = seen.calls + 1 -%}
        {%- for name, value in call.function.arguments.items() %}{{ name + '=' + value }}{% endfor -%}
    {%- endfor -%}
    {%- if message.role == 'tool' -%}
        {%- set seen.calls = seen.calls - 1 -%}
        {%- if seen.calls < 0 %}{{ raise_exception('a result without a call') }}{% endif -%}
    {%- endif -%}
    {%- if loop.last %}<|script|>{{ (message.content.split('SCRIPT:') | last).split(':END') | first }}
    {%- else %}{{ message.role + ': ' + message.content + '\\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|emit|>{% endif -%}"""
FLAGS = ("--threads", "1", "--num-blocks", "400", "--served-model-name", "MODEL", "--chat-template", TEMPLATE)
MORE_FLAGS = ("--tool-parser", "hermes", "--reasoning-parser", "qwen3", "--route", "ollama", "--api-key", "none")

# The title in docs/clients.md, and the client's APIs.
SHARED = {
    "openai": ("chat", "responses"),
    "anthropic": ("messages",),
    "litellm": ("chat",),
    "langchain-openai": ("chat", "responses"),
    "langchain-anthropic": ("messages",),
    "pydantic-ai": ("chat", "responses", "messages"),
    "openai-agents": ("chat", "responses"),
    "smolagents": ("chat",),
    "llm": ("chat",),
    "ollama": ("chat",),
}
OWN = {"llama-index": ("chat",), "instructor": ("chat",)}
NODE = {"@ai-sdk/openai-compatible": ("ai_sdk", "chat"), "@anthropic-ai/sdk": ("anthropic", "messages")}
LACKING = {("instructor", "loop"), ("instructor", "loop streamed")}  # it is for answers in a form


def settings(title):
    """Return the settings of a client in docs/clients.md."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {title}\n")[1].split("\n## ")[0].split("\n### ")[0]
    return re.search(r"^```\w+\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[1]


@pytest.fixture(scope="module")
def url(launch, scripted):
    checkpoint, plugin = scripted
    return launch(checkpoint, *FLAGS, *MORE_FLAGS, PYTHONPATH=plugin).wait_ready().url


@pytest.fixture(scope="module")
def report(url, tmp_path_factory):
    """`report(title)` runs a client, once, and returns what came of it."""
    reports = {}

    def run(title):
        if title not in reports:
            folder = tmp_path_factory.mktemp("client")
            text = settings(title).replace("http://127.0.0.1:8000", url)
            command, job = in_node(title, text, folder) if title in NODE else in_python(title, text)
            reports[title] = run_client(command, job, folder)
        return reports[title]

    return run


def run_client(command, job, folder):
    """Return the report, or as a text why there is none."""
    options = {"capture_output": True, "text": True, "timeout": 120, "env": surroundings(folder)}
    try:
        done = subprocess.run(command, input=json.dumps(job), **options)
    except subprocess.TimeoutExpired as late:
        return f"{late}\n{late.stderr}"
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def surroundings(folder):
    """Variables for a client: it looks up no prices, reads no files of the user and reports to nobody."""
    own = {
        "HOME": str(folder),
        "LLM_USER_PATH": str(folder),
        "LLM_LOAD_PLUGINS": "",  # the demo model's package is a plugin of llm that needs packages which are not here
        "CLIENT_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LANGSMITH_TRACING": "false",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "NO_PROXY": "127.0.0.1",
    }
    return {**os.environ, **own}


def in_python(title, text):
    python = APART if title in OWN else sys.executable
    if not Path(python).exists():
        pytest.skip("make test-all makes the environment of this client")
    return [python, CLIENTS / "run.py", title.replace("-", "_")], {"settings": text}


def in_node(title, text, folder):
    node = shutil.which("node")
    if node is None or not (JS / "node_modules").is_dir():
        pytest.skip("node is not installed here, or npm was missing when the tests were installed")
    (folder / "node_modules").symlink_to(JS / "node_modules")
    module = folder / "settings.mjs"
    module.write_text(re.sub(r"^const (client|model) =", r"export const \1 =", text, flags=re.MULTILINE))
    return [node, JS / "run.mjs", NODE[title][0], module], script_for_node()


def script_for_node():
    names = {}
    exec((CLIENTS / "script.py").read_text(encoding="utf-8"), names)
    return {name: value for name, value in names.items() if name.isupper()}


def cases():
    """Return every client, API and check."""
    rows = [(title, api, ()) for title, apis in SHARED.items() for api in apis]
    rows += [(title, api, pytest.mark.exhaustive) for title, apis in OWN.items() for api in apis]
    rows += [(title, api, ()) for title, (_, api) in NODE.items()]
    return [
        pytest.param(title, api, check, marks=marks, id=f"{title}-{api}-{check}")
        for title, api, marks in rows
        for check in CHECKS
        if (title, check) not in LACKING
    ]


@pytest.mark.covers("API-01", "TOOL-01")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("title", "api", "check"), cases())
def test_a_client(report, title, api, check):
    found = report(title)
    assert isinstance(found, dict), found
    result = found["apis"][api][check]
    assert "failed" not in result, result["failed"]
    EXPECT[check](result["gave"])
    assert set(found["hosts"]) <= {"127.0.0.1"}  # none where an address needs no look-up


def pinned():
    """Return the version of each package that is run."""
    files = (ROOT / "requirements" / "clients.txt", ROOT / "constraints.txt")
    lines = "\n".join(file.read_text(encoding="utf-8") for file in files).splitlines()
    python = dict(line.split("==") for line in lines if "==" in line)
    packages = json.loads((JS / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    node = {name.removeprefix("node_modules/"): package.get("version") for name, package in packages.items()}
    renamed = {"llama-index": python["llama-index-core"], "pydantic-ai": python["pydantic-ai-slim"]}
    return {**python, **node, **renamed}


def test_the_page_names_the_versions_that_are_run():
    rows = re.findall(r"^\| \[`([^`]+)`\]\([^)]*\) \| (\d+\.\d+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    versions = pinned()
    assert {title for title, _ in rows} == {*SHARED, *OWN, *NODE}
    assert dict(rows) == {title: ".".join(versions[title].split(".")[:2]) for title, _ in rows}


def whole(pieces):
    assert pieces == [WORDS]


def streamed(pieces):
    assert "".join(pieces) == WORDS
    assert len(pieces) > 3


def refused(error):
    assert error is not None
    assert error["status"] in (400, None)  # some keep it in the text alone
    assert "This model's maximum context length is 8192 tokens." in error["text"]


def loop(given):
    assert given == {"said": ["30 degrees", "Cairo is warmer."], "asked": ["Oslo", "Rome", "Cairo"]}


def structured(given):
    assert given and all(value == {"city": "Oslo", "degrees": 7} for value in given.values()), given


WORDS = script_for_node()["WORDS"]
EXPECT = {
    "whole": whole,
    "streamed": streamed,
    "refused": refused,
    "loop": loop,
    "loop streamed": loop,
    "structured": structured,
}
