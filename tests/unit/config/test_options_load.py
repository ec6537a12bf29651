from __future__ import annotations

import logging

import pytest

from core.api.errors import ConfigError
from core.config.flags import add_option_flags
from core.config.load import load_options
from core.config.parser import CoreParser


def load(*argv: str, **environ: str):
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    return load_options(parser.parse_args(list(argv)), environ)


@pytest.fixture
def file(tmp_path):
    def write(text: str, name: str = "core.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.covers("CLI-02")
def test_precedence_and_sources(file):
    path = file("kv: {block_size: 8, num_blocks: 9}\nscheduler.max_num_seqs: 10\nport: 11\nmodel: tiny\n")
    loaded = load("--config", path, "--block-size", "32", CORE_BLOCK_SIZE="16", CORE_NUM_BLOCKS="99")
    options, sources = loaded.options, loaded.sources
    assert (options.kv.block_size, sources["kv.block_size"]) == (32, "flag")
    assert (options.kv.num_blocks, sources["kv.num_blocks"]) == (99, "env CORE_NUM_BLOCKS")
    assert (options.scheduler.max_num_seqs, sources["scheduler.max_num_seqs"]) == (10, f"file {path}")
    assert (options.server.port, sources["server.port"]) == (11, f"file {path}")
    assert options.model.model == "tiny"
    assert sources["model.seed"] == "default"
    # Only what somebody set counts as set by the user, and the server's options are not LLM's.
    assert options.kv.model_fields_set == {"block_size", "num_blocks"}
    assert loaded.given() == {"model": "tiny", "block_size": 32, "num_blocks": 99, "max_num_seqs": 10}


@pytest.mark.covers("CLI-02")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", '[kv]\nblock_size = 8\nprefix_caching = false\n[select]\nkv_connector = ["a", "b"]\n'),
        ("a.toml", 'block-size = 8\nenable-prefix-caching = false\nselect.kv_connector = ["a", "b"]\n'),
        ("a.yaml", "kv:\n  block-size: 8\n  prefix_caching: false\nselect: {kv_connector: [a, b]}\n"),
        ("a.yml", "kv.block_size: 8\nenable_prefix_caching: false\nkv_connector:\n- a\n- b\n"),
    ],
)
def test_forms_of_files(file, name, text):
    options = load("--config", file(text, name)).options
    assert options.kv.block_size == 8
    assert options.kv.prefix_caching is False
    assert options.select.kv_connector == ["a", "b"]


def test_file_values_as_people_write_them(file):
    options = load("--config", file("kv_memory: 1048576\nkv_connector: a\n")).options
    assert options.kv.kv_memory == "1048576"
    assert options.select.kv_connector == ["a"]


def test_an_empty_file_changes_nothing(file):
    assert load("--config", file("# nothing\n")).options == load().options


def test_config_variable_and_flag(file):
    first, second = file("port: 1", "a.yaml"), file("port: 2", "b.yaml")
    assert load(CORE_CONFIG=first).options.server.port == 1
    assert load("--config", second, CORE_CONFIG=first).options.server.port == 2


def test_plugin_options_merge_by_key(file):
    path = file("runtime: {plugin_options: {a: {k: 1, l: 2}, b: {m: 3}}}")
    loaded = load("--config", path, "--opt", "a.k=9", CORE_PLUGIN_OPTIONS='{"a": {"l": 8}}')
    assert loaded.options.runtime.plugin_options == {"a": {"k": 9, "l": 8}, "b": {"m": 3}}
    assert loaded.sources["runtime.plugin_options.a.k"] == "flag"
    assert loaded.sources["runtime.plugin_options.a.l"] == "env CORE_PLUGIN_OPTIONS"
    assert loaded.sources["runtime.plugin_options.b.m"] == f"file {path}"
    assert loaded.given() == {"plugin_options": {"a": {"k": 9, "l": 8}, "b": {"m": 3}}}


@pytest.mark.parametrize("text", ["5", "[]", '{"a": 5}', '{"a": {"b": {"c": 1}}}'])
def test_a_later_layer_wins_over_options_of_another_shape(text):
    loaded = load("--opt", "a.b=1", CORE_PLUGIN_OPTIONS=text)
    assert loaded.options.runtime.plugin_options == {"a": {"b": 1}}


@pytest.mark.covers("CLI-02")
@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("a.yaml", "kv: {blok_size: 8}", "CORE-C102", ["kv.blok_size", "kv.block_size"]),
        ("a.yaml", "blok_size: 8", "CORE-C102", ["blok_size", "Did you mean 'block_size'?"]),
        ("a.yaml", "qqqqqqqq: 8", "CORE-C102", ["core config show"]),
        ("a.yaml", "kv: {block_size: 8}\nblock-size: 9", "CORE-C102", ["repeats", "kv.block_size"]),
        ("a.yaml", "kv: {block_size: x}", "CORE-C101", ["key kv.block_size of", "'x'", "integer"]),
        ("a.yaml", "kv: {block_size: true}", "CORE-C101", ["True", "integer"]),
        ("a.yaml", "kv: {block_size: 2026-01-01}", "CORE-C101", ["kv.block_size"]),
        ("a.yaml", "kv: {memory_fraction: .inf}", "CORE-C101", ["inf"]),
        ("a.yaml", "prefix_caching: [1]", "CORE-C101", ["true or false"]),
        ("a.yaml", "kv_connector: [1, 2]", "CORE-C101", ["kv_connector", "names"]),
        ("a.yaml", "api_key: 1234", "CORE-C101", ["api_key", "a text"]),
        ("a.yaml", "kv: 3", "CORE-C102", ["'kv'"]),
        ("a.yaml", "- 1", "CORE-C103", ["list"]),
        ("a.yaml", "a: [", "CORE-C103", ["cannot be read"]),
        ("a.toml", "a = ", "CORE-C103", ["cannot be read"]),
        ("a.ini", "a = 1", "CORE-C103", [".toml"]),
    ],
)
def test_bad_files(file, name, text, code, words):
    path = file(text, name)
    with pytest.raises(ConfigError) as caught:
        load("--config", path)
    assert caught.value.code == code
    for word in [path, *words]:
        assert word in str(caught.value)
    assert "1234" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"CORE-C103 .*absent\.yaml"):
        load("--config", str(tmp_path / "absent.yaml"))


@pytest.mark.covers("CLI-03")
@pytest.mark.parametrize("text, expected", [("0", False), ("false", False), ("no", False), ("1", True), ("TRUE", True)])
def test_switches_in_the_environment(text, expected):
    assert load(CORE_PREFIX_CACHING=text).options.kv.prefix_caching is expected


@pytest.mark.covers("CLI-03")
def test_bad_variable_is_named():
    with pytest.raises(ConfigError, match=r"variable CORE_PREFIX_CACHING: 'maybe' .*true or false"):
        load(CORE_PREFIX_CACHING="maybe")


def test_an_empty_variable_counts_as_unset():
    assert load(CORE_PORT="").sources["server.port"] == "default"


@pytest.mark.covers("CLI-03")
def test_unknown_variables_warn(caplog):
    with caplog.at_level(logging.WARNING, "core.config.environment"):
        load(CORE_BLOCKSIZE="3", CORE_LOG_LEVEL="info", CORE_PLUGIN_X="1", PATH="/bin", CORE_PORT="1")
    (record,) = caplog.records
    assert "CORE_BLOCKSIZE" in record.getMessage() and "CORE_BLOCK_SIZE" in record.getMessage()


@pytest.mark.parametrize("name", ["api_key", "admin_api_key"])
def test_an_empty_key_is_refused_and_opens_no_server(file, name):
    flag, variable = f"--{name.replace('_', '-')}", f"CORE_{name.upper()}"
    for given in (
        lambda: load(flag, ""),
        lambda: load(**{variable: ""}),
        lambda: load("--config", file(f'server: {{{name}: ""}}\n')),
    ):
        with pytest.raises(ConfigError, match="allowed: a text that is not empty") as refused:
            given()
        assert refused.value.code == "CORE-C101"
    assert load("--uds", "", CORE_UDS="").options.server.uds is None  # elsewhere nothing is no value


YARN = '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}'
YARN_READ = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def test_changes_of_the_models_configuration_are_json_everywhere(file):
    flags = load("--hf-overrides", '{"a": {"b": {"c": [1]}}, "d": null, "e": {}}', "--rope-scaling", YARN).options.model
    assert flags.hf_overrides == {"a": {"b": {"c": [1]}}, "d": None, "e": {}}
    assert flags.rope_scaling == YARN_READ
    assert load(CORE_ROPE_SCALING=YARN).options.model.rope_scaling == YARN_READ
    text = (
        '[model.hf_overrides]\nmax_position_embeddings = 9\n[model.rope_scaling]\nrope_type = "linear"\nfactor = 2.0\n'
    )
    model = load("--config", file(text, "core.toml")).options.model
    assert (model.hf_overrides, model.rope_scaling) == (
        {"max_position_embeddings": 9},
        {"rope_type": "linear", "factor": 2.0},
    )


def test_a_key_of_the_models_configuration_is_changed_on_its_own(file):
    words = ("--config-override", "rope_theta=1e6", "--hf-overrides", '{"a": 1, "sliding_window": 9}')
    model = load(*words, "--config-override=sliding_window=null", "--config-override", "act=gelu=new").options.model
    assert model.hf_overrides == {"rope_theta": 1e6, "a": 1, "sliding_window": None, "act": "gelu=new"}
    assert load(CORE_CONFIG_OVERRIDE="rope_theta=5").options.model.hf_overrides == {"rope_theta": 5}
    # Flags go before the file key by key.
    model = load("--config", file("config_override: {a: 1, b: 2}"), "--config-override", "b=[3]").options.model
    assert model.hf_overrides == {"a": 1, "b": [3]}


@pytest.mark.parametrize("value", ["[1]", "rope_theta", "=5", "a b=5"])
def test_a_change_that_is_no_pair_is_refused(value):
    with pytest.raises(ConfigError, match=r"CORE-C101 .*--config-override: "):
        load("--config-override", "a=1", "--config-override", value)


@pytest.mark.parametrize("value", ["[1]", "4", '"yarn"', "yarn"])
def test_a_scaling_that_is_no_object_is_refused(value):
    with pytest.raises(ConfigError, match=r"CORE-C101 .*--rope-scaling: .*JSON"):
        load("--rope-scaling", value)
