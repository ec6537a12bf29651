"""What is said of a family's checkpoint before it is served: `core pull`, `core show`, its chat template."""

from __future__ import annotations

import json

import pytest
from core_plugin_jinja.manifest import JINJA
from safetensors import safe_open

from core.cli.main import main
from core.config.resolved import Options, SelectOptions
from core.frontend.model import default_params
from core.frontend.templates import template_sources
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.families import TinyFamily
from core_testing.tinyhub import TinyHub, TinyRepo

PULLED = ("gpt2", "gemma3", "chatglm", "falcon")
"""Families whose files are unlike: names of keys, windows, configurations in Python code, old spellings."""


@pytest.fixture
def shown(capsys):
    """`shown(words)` returns what `core show` says of a model, as data."""

    def run(*words):
        assert main(["show", *map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.covers("CLI-05", "MODEL-01")
def test_show_knows_the_family(made, shown):
    found = shown(made.directory)
    with safe_open(made.directory / "model.safetensors", "pt") as file:
        sizes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    count = sum(size[0] if len(size) == 1 else size[0] * size[1] if size else 1 for size in sizes if len(size) < 3)
    assert found["architecture"] == made.row.architecture and not found["implementation"].startswith("none")
    assert (found["gives"], found["chat template"], found["format"]) == ("text", "yes", "safetensors")
    assert found["context"] > 0 and found["parameters"] >= count > 0


@pytest.fixture
def hub(monkeypatch, tmp_path, families):
    from huggingface_hub import constants

    repositories = {f"acme/{name}": TinyRepo.of(families[name].write(tmp_path / "made" / name)) for name in PULLED}
    with TinyHub(repositories) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub


@pytest.mark.covers("CLI-05")
def test_pull_takes_what_a_family_needs(hub, shown, capsys):
    for name in PULLED:
        assert main(["pull", f"acme/{name}"]) == 0
        capsys.readouterr()
        found = shown(f"acme/{name}")
        assert set(found["files"]) >= {"config.json", "model.safetensors", "tokenizer.json"}
        assert not found["implementation"].startswith("none")


def resolved(directory):
    options = Options(
        model=ModelOptions(model=str(directory), dtype="float32", max_model_len=64),
        kv=KVOptions(num_blocks=20),
        runtime=RuntimeOptions(threads=1),
        select=SelectOptions(),
    )
    return resolve(options)


TOKENS = {
    "phi3": ("phi3", ["<|user|>", "<|assistant|>", "<|end|>"]),
    "cohere": ("command-r", ["<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"]),
    "chatglm": ("chatglm3", ["[gMASK]", "sop", "<|user|>"]),
    "glm4": ("chatglm4", ["[gMASK]", "<sop>", "<|user|>"]),
    "gemma3": ("gemma", ["<start_of_turn>", "<end_of_turn>"]),
    "internlm2": ("chatml", ["<|im_start|>", "<|im_end|>"]),
    "qwen1": ("chatml", []),
    "granite": ("granite", ["<|start_of_role|>", "<|end_of_role|>"]),
    "exaone": ("exaone", []),
    "seed": ("seed", ["<seed:bos>", "<seed:eos>"]),
    "falcon": (None, []),
}
"""Row -> template of a checkpoint without one, with these tokens."""


@pytest.mark.covers("REND-07")
@pytest.mark.parametrize("name", TOKENS)
def test_a_checkpoint_without_a_template_has_that_of_its_tokens(name, families, shown, tmp_path):
    row: TinyFamily = families[name]
    directory = row.write(tmp_path / "model")
    template, tokens = TOKENS[name]
    path = directory / "tokenizer.json"
    content = json.loads(path.read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    kept = [token for token in content["added_tokens"] if token["content"] not in ("<|im_start|>", "<|im_end|>")]
    known = {token["content"] for token in kept}
    new = [token for token in tokens if token not in known]
    vocabulary = content["model"]["vocab"]
    kept += [
        {"id": vocabulary.get(token, 500 + place), "content": token, "special": True, **flags}
        for place, token in enumerate(new)
    ]
    path.write_text(json.dumps({**content, "added_tokens": kept}))
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    for key in ("chat_template", "additional_special_tokens"):
        settings.pop(key, None)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7}')
    resolution = resolved(directory)
    sources = template_sources(resolution.config, resolution.reader.tokenizer(directory), JINJA.marks)
    assert bool(sources) == (template is not None)
    found = shown(directory)
    assert found["chat template"] == ("no" if template is None else f"none of its own; served as {template}")
    assert found["sampling"] == "temperature 0.25, top_k 7"
    params = default_params(resolution.config.checkpoint)
    assert (params.temperature, params.top_k) == (0.25, 7)
