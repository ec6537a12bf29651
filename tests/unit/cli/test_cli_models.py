"""`core pull`, `ls`, `show` and `rm`, against a hub of the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.cli.main import main
from core_testing.tinyhub import TinyHub, TinyRepo

TOKEN = "hf_Secret-of.the_User"
CARD = b"---\nlanguage: en\nlicense: apache-2.0\n---\n# Tiny\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    from core_testing.tinymodels import tiny_llama

    folder = tiny_llama(tmp_path_factory.mktemp("model"))
    template = folder / "chat_template.jinja"
    assert template.is_file() or "chat_template" in (folder / "tokenizer_config.json").read_text()
    return {**TinyRepo.of(folder).files, "README.md": CARD}


@pytest.fixture
def hub(monkeypatch, tmp_path, files):
    from huggingface_hub import constants

    monkeypatch.delenv("HF_TOKEN", raising=False)
    with TinyHub({"acme/tiny": TinyRepo(files), "acme/secret": TinyRepo(files, token=TOKEN)}) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub


@pytest.fixture
def core(capsys):
    def run(*words):
        status = main(list(words))
        out, err = capsys.readouterr()
        assert TOKEN not in out + err
        return status, out, err

    return run


@pytest.mark.covers("CLI-05")
def test_from_pull_to_rm(hub, core, files):
    status, out, err = core("pull", "acme/tiny")
    assert status == 0 and out.startswith("acme/tiny: ") and f"revision {hub.repos['acme/tiny'].commit})" in out
    assert "fetching: 100 %" in err
    rows = {row["reference"]: row for row in json.loads(core("ls", "--json")[1])}
    mine = rows["acme/tiny"]
    assert mine["source"] == "hub" and mine["removable"] and mine["used"] > 1e9
    assert mine["num_bytes"] == sum(map(len, set(files.values())))
    assert not rows["smollm2"]["removable"]
    table = core("ls")[1]
    assert "acme/tiny" in table and "smollm2 (installed)" in table and " ago " in table
    shown = json.loads(core("show", "acme/tiny", "--json")[1])
    assert shown["architecture"] == "LlamaForCausalLM" and shown["implementation"].startswith("llama (")
    assert (shown["context"], shown["license"], shown["chat template"]) == (256, "apache-2.0", "yes")
    assert 0 < shown["parameters"] * 4 <= len(files["model.safetensors"])
    assert set(shown["files"]) == set(files) and shown["size"] == sum(map(len, files.values()))
    assert core("rm", "hf:acme/tiny", "--yes")[1].startswith("removed acme/tiny@")
    assert not Path(mine["path"]).exists()
    assert "acme/tiny" not in core("ls")[1]


def test_what_a_gguf_file_says(core):
    status, out, _ = core("show")
    assert status == 0
    for words in ("LlamaForCausalLM", "135 M", "210 x Q4_1", "apache-2.0", "chat template     yes", "8192"):
        assert words in out


def test_formats_are_proposed_by_the_marks_of_the_template(hub, core, files, tmp_path):
    tokenizer = json.loads(files["tokenizer_config.json"])
    tokenizer.pop("chat_template", None)
    for name, content in {**files, "tokenizer_config.json": json.dumps(tokenizer).encode()}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "chat_template.jinja").write_text("{{ tools }}<tool_call></tool_call>")
    shown = json.loads(core("show", str(tmp_path), "--json")[1])
    assert "hermes" in shown["tool parser"] and shown["tool parser"].startswith("to be named")
    tokenizer["response_template"] = {"format": "something"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert json.loads(core("show", str(tmp_path), "--json")[1])["tool parser"].endswith("(auto)")
    config = json.loads(files["config.json"])
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["NobodysModel"]}))
    assert "none: no plugin implements" in core("show", str(tmp_path))[1]


@pytest.mark.covers("CLI-05")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pull", "acme/nothing"], "CORE-M107", "no such model"),
        (["pull", "acme/secret", "--hf-token", "hf_wrong"], "CORE-M107", "private"),
        (["pull", "acme/tiny", "--hf-token"], "CORE-M172", "hf auth login"),
        (["pull", "acme/tiny", "--offline"], "CORE-M170", "core pull acme/tiny"),
        (["pull", "acme/tiny", "--revision", "v9"], "CORE-M107", "v9"),
        (["show", "acme/tiny"], "CORE-M170", "core pull acme/tiny"),
        (["serve", "acme/tiny", "--offline", "--port", "0"], "CORE-M170", "offline"),
        (["rm", "acme/tiny", "-y"], "CORE-M176", "core ls"),
        (["rm", "smollm2", "-y"], "CORE-M177", "installed distribution"),
    ],
)
def test_what_goes_wrong_is_one_sentence(hub, core, words, code, said):
    status, out, err = core(*words)
    assert (status, out) == (1, "")
    assert err.count("\n") == 1 and err.startswith(f"core: {code} ") and said in err


@pytest.mark.covers("CLI-05")
def test_a_traceback_has_no_token(hub, capsys):
    import traceback

    hub.refused = (TOKEN,)
    with pytest.raises(Exception, match="CORE-M172") as caught:
        main(["pull", "acme/secret", "--hf-token", TOKEN, "--debug"])
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("answer", "left"), [("y", False), ("YES", False), ("", True), ("n", True), (None, True)])
def test_rm_asks_on_a_terminal(hub, core, monkeypatch, answer, left):
    def say(prompt):
        assert prompt == "Remove? [y/N] "
        if answer is None:
            raise EOFError
        return answer

    core("pull", "acme/tiny")
    status, _, err = core("rm", "acme/tiny")
    assert status == 2 and "CORE-C186" in err and "--yes" in err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", say)
    status, out, _ = core("rm", "acme/tiny")
    assert status == int(left) and "acme/tiny@" in out
    assert ("acme/tiny" in core("ls")[1]) is left


def test_all_revisions_or_one(hub, core, files):
    first = hub.repos["acme/tiny"].commit
    core("pull", "acme/tiny")
    hub.repos["acme/tiny"] = TinyRepo({**files, "config.json": files["config.json"] + b"\n"})
    core("pull", "acme/tiny")
    assert core("ls")[1].count("acme/tiny") == 2
    assert first[:12] in core("rm", "acme/tiny", "-y", "--revision", first)[1]
    assert core("ls")[1].count("acme/tiny") == 1 and core("show", "acme/tiny")[0] == 0
    core("pull", "acme/tiny", "--revision", hub.repos["acme/tiny"].commit)
    core("rm", "acme/tiny", "-y")
    assert "acme/tiny" not in core("ls")[1]


@pytest.fixture
def packed(monkeypatch, tmp_path):
    """Two packed forms of a model that the hub's cache has, and one of a file."""
    import torch
    from core_plugin_mapped_weights.store import MappedStore

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = {"1" * 64: "acme/tiny", "2" * 64: "acme/tiny", "3" * 64: "/models/own.gguf"}
    for key, model in keys.items():
        assert MappedStore({}).keep(key, {"w": torch.ones(1000)}, {"model": model}, lambda: True)
    return tmp_path / "cache" / "core" / "weights"


@pytest.mark.covers("CLI-05")
def test_packed_weights_are_listed_and_removed(hub, core, packed):
    core("pull", "acme/tiny")
    rows = [row for row in json.loads(core("ls", "--json")[1]) if row["source"] == "mapped"]
    assert [row["reference"] for row in rows] == ["/models/own.gguf:packed", *["acme/tiny:packed"] * 2]
    assert all(row["num_bytes"] > 4000 and row["removable"] and row["used"] > 1e9 for row in rows)
    assert "/models/own.gguf:packed" in core("ls")[1]
    assert core("rm", "acme/tiny:packed", "--revision", "1111", "-y")[1].startswith("removed acme/tiny:packed@1111")
    assert sorted(path.stem[0] for path in packed.iterdir()) == ["2", "3"]
    status, out, _ = core("rm", "acme/tiny", "/models/own.gguf", "-y")
    assert status == 0 and out.count("removed ") == 3  # the model, and what is kept of it
    assert list(packed.iterdir()) == []


def test_the_folder_of_packed_weights_may_be_another(core, packed, tmp_path):
    packed.rename(tmp_path / "other")
    assert "packed" not in core("ls")[1]
    assert "acme/tiny:packed" in core("ls", "--opt", f"mapped.folder={tmp_path / 'other'}")[1]
