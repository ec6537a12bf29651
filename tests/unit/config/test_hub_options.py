"""Options of the model hub: tokens that never show, offline mode, and vLLM's spellings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from core.api.errors import ConfigError
from core.config.flags import add_option_flags
from core.config.load import load_options
from core.config.parser import CoreParser
from core.config.resolved import Options
from core.frontend.overrides import options_with
from core.selection.stores import access_of
from core.server.secrets import shown

pytestmark = pytest.mark.covers("CLI-05")
TOKEN = "hf_Secret-of.the_User"


@pytest.fixture(scope="module")
def parser():
    made = CoreParser(prog="core serve")
    add_option_flags(made, positional_model=True)
    return made


@pytest.fixture
def options(parser):
    return lambda *words, **environ: load_options(parser.parse_args(list(words)), environ).options


@pytest.mark.parametrize(
    ("words", "token"),
    [
        ([], None),
        (["--hf-token", TOKEN], TOKEN),
        ([f"--hf_token={TOKEN}"], TOKEN),
        (["--hf-token"], True),
        (["--hf-token", "--offline"], True),
        (["--hf-token", "true"], True),
        (["--hf-token", "False"], False),
    ],
)
def test_a_token_or_the_login(options, words, token):
    assert access_of(options(*words).hub).token == token


def test_the_model_stays_the_model(options):
    assert options("acme/tiny", "--hf-token").model.model == "acme/tiny"
    with pytest.raises(ConfigError, match="--hf-token: the value is not allowed"):
        options("--hf-token", "acme/tiny")


@pytest.mark.parametrize("value", [True, "true"])
def test_true_in_a_file_and_in_python(tmp_path, value):
    file = tmp_path / "core.yaml"
    file.write_text(f"hub: {{hf_token: {json.dumps(value)}}}")
    loaded = load_options(argparse.Namespace(config=str(file)), {})
    assert access_of(loaded.options.hub).token is True
    assert access_of(options_with(None, {"hf_token": value}).hub).token is True


def test_the_environment(options):
    hub = options(CORE_HF_TOKEN=TOKEN, CORE_OFFLINE="1", CORE_DOWNLOAD_DIR="/srv/models").hub
    assert (hub.hf_token, hub.offline, hub.download_dir) == (TOKEN, True, "/srv/models")
    with pytest.raises(ConfigError, match="CORE_HF_TOKEN"):
        options(CORE_HF_TOKEN="")


@pytest.mark.parametrize("text", ["a b", "hf_\x00", "hf_ü", "", "x\ny"])
def test_what_is_no_token_is_refused_unseen(options, text):
    with pytest.raises(ConfigError) as caught:
        options("--hf-token", text)
    assert not text or text not in str(caught.value)


def test_a_token_shows_nowhere(options, capsys, monkeypatch):
    from core.cli.main import main

    given = options("--hf-token", TOKEN)
    assert TOKEN not in repr(given) and TOKEN not in str(given.hub)
    assert TOKEN not in json.dumps(shown(given))
    assert shown(given)["hub"]["hf_token"] == "(secret)"
    monkeypatch.setenv("CORE_HF_TOKEN", TOKEN)
    for words in (["show"], ["show", "--json"], ["explain", "hf-token"]):
        assert main(["config", *words]) == 0
        assert TOKEN not in capsys.readouterr().out


def test_revisions_as_vllm_spells_them(options):
    pinned = options("acme/tiny", "--revision", "v1", "--tokenizer-revision", "v1", "--code-revision=v2")
    assert pinned == options("acme/tiny", "--revision=v1")
    assert options("--tokenizer-revision=v1", "acme/tiny", "--revision=v1").model.revision == "v1"
    for words in (["--tokenizer-revision", "v1"], ["--revision", "v2", "--tokenizer-revision", "v1"]):
        with pytest.raises(ConfigError, match="CORE-C105 --tokenizer-revision v1"):
            options("acme/tiny", *words)
    assert options("--download-dir", "/srv").hub.download_dir == "/srv"


def test_access_follows_the_options():
    access = access_of(Options.model_validate({"hub": {"offline": True, "download_dir": "/srv"}}).hub, print)
    assert (access.offline, access.folder, access.progress, access.token) == (True, "/srv", print, None)


def test_the_hubs_command_has_its_present_name():
    """`hf` took the place of the old command."""
    root = Path(__file__).parents[3]
    pages = [
        root / "README.md",
        *root.glob("docs/**/*.md"),
        *root.glob("plugins/*/*/README.md"),
        *root.glob("core/**/*.py"),
    ]
    sources = [*pages, *root.glob("plugins/*/*/src/**/*.py")]
    old = "huggingface" + "-cli"
    assert [str(path) for path in sources if old in path.read_text()] == []
    assert any("hf auth login" in path.read_text() for path in pages)
