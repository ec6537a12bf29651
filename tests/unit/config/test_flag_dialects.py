"""Flag dialects: who is asked, when, in which order, and what happens where one fails or none is installed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import textwrap

import pytest

from core import logs
from core.api.errors import ConfigError
from core.cli.main import main
from core.config import dialects
from core.config.flags import add_option_flags
from core.config.load import load_options
from core.config.parser import CoreParser
from core.frontend.overrides import options_with
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry

MANIFEST = """
from core.api import FlagDialectSpec

SPEC = FlagDialectSpec(name="{name}", impl="{package}.dialect:Flags", api=1, summary="s")
"""
DIALECT = """
from core.api import ConfigError

class Flags:
    def option(self, name):
        return {{"window": "max-model-len", "cache": "prefix-caching"}}.get(name)

    def translate(self, words, known):
        assert "--broken" not in words
        found = []
        for word in words:
            if word == "--refused":
                raise ConfigError("CORE-C105", "--refused is not supported.", hint="Because of {name}.")
            found += {{"--nothing": [], "--slots": ["--max-num-seqs={seqs}"]}}.get(word, [word])
        return found

    def setting(self, key, value):
        return {{"slots": [("max-num-seqs", value)], "nothing": []}}.get(key)

    def spelled(self, path, value):
        return {{"halb": "float16", "viele": "12"}}.get(value)

    def describe(self, name):
        return ["slots, as {name} has them"] if name.removeprefix("--") == "slots" else None
"""
CHILD = """
import json, sys
from core.cli.main import main
main(json.loads(sys.argv[1]))
print(json.dumps([name for name in sys.modules if name.startswith("core_plugin_vllm")]))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Have these dialects, and no others, in the order in which they are given."""

    def install(**seqs: int) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        entries = []
        for name, number in seqs.items():
            package = tmp_path / f"dialect_{name}"
            package.mkdir()
            (package / "__init__.py").write_text("")
            given = {"name": name, "package": package.name, "seqs": number}
            (package / "manifest.py").write_text(MANIFEST.format(**given))
            (package / "dialect.py").write_text(textwrap.dedent(DIALECT.format(**given)))
            entries.append(Entry(dialects.GROUP, name, name, "1.0", f"{package.name}.manifest:SPEC"))
        monkeypatch.setattr(Catalogue, "scan", classmethod(lambda cls, disabled=(): cls(entries, disabled)))
        dialects._at.cache_clear()
        dialects._tell.cache_clear()

    yield install
    dialects._at.cache_clear()


def parse(*words: str):
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    return load_options(parser.parse_args(list(words)), {}).options


def refusal(*words: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(*words)
    return caught.value


def test_core_alone_imports_no_dialect(tmp_path):
    """Help, the version, a line and a file of core's own words; one word of vLLM's, and it is there."""
    file = tmp_path / "core.toml"
    file.write_text('max_model_len = "8k"\nload_format = "auto"\n[kv]\nprefix_caching = false\n')
    own = ["config", "show", "smollm2", "--port", "8000", "--no-compile", "--max-model-len=-1", "--config", str(file)]
    for words, found in (
        (["--version"], False),
        (["config", "explain", "--memory-fraction"], False),
        ([*own, "--dtype", "float32", "--opt", "a.b=-x"], False),
        ([*own, "--dtype", "half"], True),
        ([*own, "-tp", "1"], True),
    ):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(words)], capture_output=True, text=True, check=True
        )
        assert bool(json.loads(done.stdout.splitlines()[-1])) == found, words


def test_serves_help_imports_no_dialect():
    code = CHILD.replace(
        "main(json.loads(sys.argv[1]))",
        "import contextlib\nwith contextlib.suppress(SystemExit): main(['serve', '--help'])",
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_first_that_knows_a_word_decides(install, caplog):
    install(aaa=3, bbb=5)
    assert parse("m", "--slots", "--nothing").scheduler.max_num_seqs == 3
    assert refusal("m", "--refused").hint == "Because of aaa."
    assert not caplog.records


def test_further_names_hold_everywhere(install, tmp_path):
    install(aaa=3)
    assert parse("m", "--window", "64", "--no-cache").kv.prefix_caching is False
    assert parse("m", "--model.window=64", "--kv.no-cache").model.max_model_len == 64
    assert parse("m", "--cache", "--window=8k").model.max_model_len == 8000
    assert "flag --window" in str(refusal("m", "--window", "-7"))
    assert refusal("m", "--kv.window=64").code == "CORE-C104"
    file = tmp_path / "core.yaml"
    file.write_text("model.window: 32\ncache: false\nslots: 7\nnothing: 1\n")
    loaded = parse("--config", str(file))
    assert (loaded.model.max_model_len, loaded.kv.prefix_caching, loaded.scheduler.max_num_seqs) == (32, False, 7)
    assert options_with(None, {"window": 16}).model.max_model_len == 16
    with pytest.raises(ConfigError, match="C130"):
        options_with(None, {"model.window": 16})
    environ = {"CORE_WINDOW": "16", "CORE_CACHE": "false"}
    parser = CoreParser(prog="core serve")
    add_option_flags(parser)
    loaded = load_options(parser.parse_args([]), environ)
    assert (loaded.options.model.max_model_len, loaded.sources["model.max_model_len"]) == (16, "env CORE_WINDOW")
    with pytest.raises(ConfigError, match="C109"):
        load_options(parser.parse_args([]), environ | {"CORE_MAX_MODEL_LEN": "17"})


def test_values_are_asked_for_only_where_core_does_not_read_them(install):
    install(aaa=3)
    loaded = parse("--dtype", "halb", "--max-num-seqs", "viele", "--served-model-name", "halb")
    assert (loaded.model.dtype, loaded.scheduler.max_num_seqs) == ("float16", 12)
    assert loaded.model.served_model_name == "halb"
    assert refusal("--dtype", "other").code == "CORE-C101"


def test_explained(install, capsys):
    install(aaa=3)
    for name in ("slots", "--slots"):
        assert main(["config", "explain", name]) == 0
        assert "slots, as aaa has them" in capsys.readouterr().out
    for name in ("window", "--window", "CORE_WINDOW", "model.window"):
        assert main(["config", "explain", name]) == 0
        assert "model.max_model_len" in capsys.readouterr().out


def test_one_that_fails_is_told_of_once_and_the_others_are_asked(install, caplog, monkeypatch):
    install(aaa=3, bbb=5)
    monkeypatch.setattr(logging.getLogger(logs.__name__.partition(".")[0]), "propagate", True)
    bad = Entry(dialects.GROUP, "aa", "aa", "1.0", "no_such_module:SPEC")
    entries = [bad, *Catalogue.scan().entries(dialects.GROUP)]
    monkeypatch.setattr(Catalogue, "scan", classmethod(lambda cls, disabled=(): cls(entries, disabled)))
    assert parse("m", "--slots").scheduler.max_num_seqs == 3
    assert refusal("m", "--broken").code == refusal("m", "--broken").code == "CORE-C104"
    told = [record.message for record in caplog.records]
    assert len(told) == 3 and "'aa'" in told[0] and "'aaa'" in told[1] and "'bbb'" in told[2]
    assert "CORE-P108" in told[1] and "AssertionError" in told[1]


def test_where_none_is_installed_the_refusal_says_what_to_install(install, tmp_path, capsys):
    install()
    dist = "core-plugin-vllm-flags"
    told = f"{dist} knows flags, configuration keys and values of vLLM: `pip install {dist}`."
    error = refusal("m", "--max-num-seq", "3")
    assert (error.code, error.hint) == ("CORE-C104", f"Did you mean '--max-num-seqs'? {told}")
    (tmp_path / "core.toml").write_text("tensor_parallel_size = 1\n")
    error = refusal("m", "--config", str(tmp_path / "core.toml"))
    assert error.code == "CORE-C102" and error.hint.endswith(told)
    with pytest.raises(ConfigError, match="pip install core-plugin-vllm-flags"):
        options_with(None, {"gpu_memory_utilization": 0.5})
    assert main(["config", "explain", "tensor-parallel-size"]) == 2
    assert told in capsys.readouterr().err
    with pytest.raises(ConfigError) as caught:
        CoreParser(prog="core ls").parse_args(["--tensor-parallel-size", "1"])
    assert "vllm" not in caught.value.hint
