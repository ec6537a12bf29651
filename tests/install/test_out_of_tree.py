"""Plugins from outside the tree are first-class: built as wheels, installed in a fresh environment, chosen by flag."""

from __future__ import annotations

import json
import shutil
import socket
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.timeout(900)  # the first to ask for wheels may have to compile the native library
ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "acme-core-gpt2": {("model implementation", "acme_gpt2")},
    "acme-core-scripted": {("model implementation", "scripted")},
    "acme-core-einsum": {("attention backend", "einsum_paged")},
    "acme-core-directives": {("tool parser", "directives")},
    "acme-core-cohere": {("route plugin", "cohere")},
    "acme-core-azure": {("route plugin", "azure")},
    "acme-core-top-n-sigma": {("logits processor", "top_n_sigma")},
    "acme-core-blockdir": {("KV connector", "blockdir"), ("hook plugin", "blockdir_checks")},
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
SCRIPT = '@@think\nThe user asks for Paris.\n@@end\nLet me see.\n@@call get_weather\ncity: "Paris"\ndays: 3\n@@end'


def listed(environment, folder):
    done = environment.run([environment.core, "plugins", "list", "--json"], cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def explained(environment, folder, *words):
    """What `core plugins why` says: group -> (chosen plugin, its distribution, how)."""
    done = environment.run([environment.core, "plugins", "why", *words, "--json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    chosen = {}
    for selection in json.loads(done.stdout)["selections"]:
        for winner in selection["candidates"]:
            if winner["state"] == "chosen":
                chosen[selection["group"]] = (winner["name"], winner["distribution"], selection["how"])
    return chosen


def write(environment, folder, source):
    """Run a few lines in the fresh environment that write a checkpoint to `folder`."""
    done = environment.run([environment.python, "-c", source, folder], cwd=folder.parent, timeout=90)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def gpt2(environment, tmp_path_factory):
    source = """
import sys
from pathlib import Path
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from core_testing.tinymodels import VOCAB_SIZE, tiny_tokenizer
torch.manual_seed(0)
sizes = {"vocab_size": VOCAB_SIZE, "n_positions": 512, "n_embd": 48, "n_layer": 2, "n_head": 4}
GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=2)).save_pretrained(sys.argv[1])
tiny_tokenizer(Path(sys.argv[1]))
"""
    return write(environment, tmp_path_factory.mktemp("gpt2") / "gpt2", source)


@pytest.fixture(scope="module")
def scripted(environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripted")
    done = environment.run([environment.root / "bin" / "acme-scripted-checkpoint", folder / "scripted"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "scripted"


@pytest.mark.covers("PKG-01")
def test_every_distribution_is_installed_and_nothing_leads_back_to_the_checkout(environment, projects, neutral):
    wanted = {tomllib.loads((path / "pyproject.toml").read_text())["project"]["name"] for path in projects}
    source = """
import importlib.metadata, json, sys
import core
names = {dist.name: dist for dist in importlib.metadata.distributions()}
files = [str(file.locate()) for name, dist in names.items() if name.startswith(("core", "acme")) for file in dist.files]
print(json.dumps({"names": list(names), "files": files, "core": core.__file__, "path": sys.path}))
"""
    found = json.loads(environment.run([environment.python, "-c", source], cwd=neutral).stdout)
    assert wanted <= set(found["names"])
    assert Path(found["core"]).is_relative_to(environment.root)
    assert all(Path(file).resolve().is_relative_to(environment.root) for file in found["files"])
    assert not [place for place in found["path"] if Path(neutral, place).resolve().is_relative_to(ROOT)]


def test_the_list_shows_every_plugin_with_its_distribution(environment, neutral):
    rows = listed(environment, neutral)
    for distribution, plugins in EXAMPLES.items():
        assert {(row["kind"], row["name"]) for row in rows if row["distribution"] == distribution} == plugins
    assert {row["distribution"] for row in rows} > {"core-plugin-llama", "core-plugin-cpu", *EXAMPLES}
    assert [row for row in rows if row["state"].startswith("failed")] == []


def test_parser_model_and_attention_backend_of_strangers_answer_one_chat(environment, serve, scripted):
    flags = ["--model-impl", "scripted", "--attention-backend", "einsum_paged", "--tool-parser", "directives"]
    why = explained(environment, scripted.parent, scripted, *flags)
    assert why["core.models"] == ("scripted", "acme-core-scripted", "as asked")
    assert why["core.attention_backends"] == ("einsum_paged", "acme-core-einsum", "as asked")
    assert why["core.tool_parsers"] == ("directives", "acme-core-directives", "as asked")
    server = serve(scripted, *flags, "--num-blocks", "300")
    message = server.chat(SCRIPT, tools=TOOLS)["choices"][0]["message"]
    assert message["reasoning"] == "The user asks for Paris."
    assert message["content"] == "Let me see."
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris", "days": 3}
    assert server.chat("Grüße, 😀!")["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "Grüße, 😀!"},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
    }
    address = urlsplit(server.url)
    server.end()
    assert server.ended == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=5).close()


def test_an_api_of_a_stranger_beside_the_servers_own(serve, scripted):
    server = serve(scripted, "--model-impl", "scripted", "--tool-parser", "directives", "--route", "cohere")
    asked = {"messages": [{"role": "user", "content": SCRIPT}], "tools": TOOLS}
    whole = server.post("/v2/chat", asked)
    assert whole["message"]["tool_plan"] == "The user asks for Paris." and whole["finish_reason"] == "TOOL_CALL"
    assert whole["message"]["content"] == [{"type": "text", "text": "Let me see."}]
    (call,) = whole["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris", "days": 3}
    assert server.chat("Hello")["choices"][0]["message"]["content"] == "Hello"


def test_model_and_connector_of_strangers_and_blocks_that_outlive_a_restart(environment, serve, gpt2, tmp_path):
    blocks = tmp_path / "blocks"
    flags = ["--model-impl", "acme_gpt2", "--kv-connector", "blockdir", "--opt", f"blockdir.path={blocks}"]
    why = explained(environment, tmp_path, gpt2, *flags, "--hash-seed", "quiet")
    assert why["core.models"] == ("acme_gpt2", "acme-core-gpt2", "as asked")
    assert why["core.kv_connectors"] == ("blockdir", "acme-core-blockdir", "as asked")
    answers = []
    for _ in range(2):
        server = serve(gpt2, *flags, "--num-blocks", "64", CORE_HASH_SEED="quiet")
        answers.append(server.chat("every token " * 20, temperature=0, max_tokens=8, ignore_eos=True))
        server.end()
    first, second = answers
    assert list(blocks.glob("*.kv"))
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32
    assert second["choices"] == first["choices"]


def test_without_flags_the_checkpoint_chooses_the_strangers_model(environment, gpt2, neutral):
    why = explained(environment, neutral, gpt2)
    assert why["core.models"] == ("acme_gpt2", "acme-core-gpt2", "chosen by score")
    assert why["core.attention_backends"][1] != "acme-core-einsum"  # experimental: only when asked for


def test_commands_have_flags_of_strangers_sampling_parameters(environment, neutral):
    for command in ("chat", "run", "complete"):
        words = [environment.core, command, "--help=all" if command == "run" else "--help"]
        done = environment.run(words, cwd=neutral)
        assert (done.returncode, done.stderr) == (0, "") and "--top-n-sigma" in done.stdout


def test_the_examples_own_tests_pass_in_the_fresh_environment(environment, neutral):
    for file in ROOT.glob("examples/plugins/*/tests/*.py"):
        shutil.copy(file, neutral)
    words = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "."]
    done = environment.run(words, cwd=neutral, timeout=100)
    assert done.returncode == 0, done.stdout
