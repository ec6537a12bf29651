from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.errors import ConfigError
from core.config.fields import ALIASES, fields_by_path, option_fields, section_help
from core.config.flags import add_option_flags, dotted_spellings, to_argv
from core.config.load import load_options
from core.config.option_field import OptionField
from core.config.parser import CoreParser
from core.config.resolved import Options


def make_parser() -> CoreParser:
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    return parser


PARSER = make_parser()


def load(*argv: str, **environ: str):
    return load_options(PARSER.parse_args(list(argv)), environ)


def value(options: Options, path: str):
    section, name = path.split(".")
    return getattr(getattr(options, section), name)


@pytest.mark.covers("CLI-01")
def test_every_option_has_a_flag_a_variable_and_help():
    names = [name for field in option_fields() for name in field.names]
    assert len(names) == len(set(names))
    assert len({field.env for field in option_fields()}) == len(option_fields())
    shown = PARSER.format_help()
    for field in option_fields():
        assert field.description
        assert field.flag in shown and field.env in shown
    assert {field.section for field in option_fields()} == set(section_help())
    assert set(ALIASES) <= set(fields_by_path())


@pytest.mark.covers("CLI-01")
def test_defaults_are_those_of_the_model():
    loaded = load()
    assert loaded.options == Options()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.given() == {}


@pytest.mark.parametrize(
    ("argv", "path", "expected"),
    [
        (["--block-size", "32"], "kv.block_size", 32),
        (["--block-size=32"], "kv.block_size", 32),
        (["--kv.block-size", "32"], "kv.block_size", 32),
        (["--kv.block_size=32"], "kv.block_size", 32),
        (["--block_size", "32"], "kv.block_size", 32),
        (["smollm2"], "model.model", "smollm2"),
        (["--model", "smollm2"], "model.model", "smollm2"),
        (["--gpu-memory-utilization", "0.25"], "kv.memory_fraction", 0.25),
        (["--memory-fraction", "0.25"], "kv.memory_fraction", 0.25),
        (["--kv-cache-memory-bytes", "1GiB"], "kv.kv_memory", "1GiB"),
        (["--num-gpu-blocks-override", "64"], "kv.num_blocks", 64),
        (["--kv-cache-dtype", "float32"], "kv.kv_dtype", "float32"),
        (["--no-enable-prefix-caching"], "kv.prefix_caching", False),
        (["--no-prefix-caching"], "kv.prefix_caching", False),
        (["--kv.no-prefix-caching"], "kv.prefix_caching", False),
        (["--no-kv.prefix-caching"], "kv.prefix_caching", False),
        (["--no-prefix-caching", "--enable-prefix-caching"], "kv.prefix_caching", True),
        (["--tool-call-parser", "hermes"], "select.tool_parser", "hermes"),
        (["--scheduler-policy", "priority"], "select.scheduler_policy", "priority"),
        (["--scheduling-policy", "priority"], "select.scheduler_policy", "priority"),
        (["--select.scheduling_policy=priority"], "select.scheduler_policy", "priority"),
        (["--weight-loader", "gguf"], "select.load_format", "gguf"),
        (["--max-num-seqs", "7"], "scheduler.max_num_seqs", 7),
        (["--max-num-batched-tokens", "99"], "scheduler.max_num_batched_tokens", 99),
        (["--kv-connector", "a,b", "--kv-connector", "c"], "select.kv_connector", ["a", "b", "c"]),
        (["--seed", "-3"], "model.seed", -3),
        (["--max-model-len", ""], "model.max_model_len", None),
        (["--opt", "hermes.strict=true"], "runtime.plugin_options", {"hermes": {"strict": True}}),
        (["--opt", "x.path=/a=b"], "runtime.plugin_options", {"x": {"path": "/a=b"}}),
        (
            ["--plugin-options", '{"a": {"k": 1, "l": 2}}', "--opt", "a.k=3", "--opt", "b.m.n=x"],
            "runtime.plugin_options",
            {"a": {"k": 3, "l": 2}, "b": {"m.n": "x"}},
        ),
    ],
)
def test_spellings(argv, path, expected):
    assert value(load(*argv).options, path) == expected


def test_every_dotted_spelling_is_understood():
    for dotted, flag in dotted_spellings().items():
        field = next(field for field in option_fields() if flag.removeprefix("--").removeprefix("no-") in field.names)
        words = [dotted] if field.kind == "bool" else [f"{dotted}={_example(field)}"]
        assert load(*words).sources != load().sources


def _example(field: OptionField) -> str:
    examples = {"choice": field.choices[-1:], "mapping": ['{"a": {"b": 1}}'], "float": ["0.5"], "list": ["a"]}
    bounds = dict(limit.split(maxsplit=1) for limit in field.limits)
    return {"kv.kv_memory": "1GiB"}.get(field.path) or (examples.get(field.kind) or [bounds.get(">=", "8")])[0]


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--block-size", "x"], "CORE-C101", ["--block-size", "'x'", "integer >= 1 and <= 1024"]),
        (["--max-model-len", "0"], "CORE-C101", ["--max-model-len", "'0'"]),
        (["--block-size", "0"], "CORE-C101", ["--block-size", "'0'", ">= 1"]),
        (["--gpu-memory-utilization", "1.5"], "CORE-C101", ["--gpu-memory-utilization", "1.5", "<= 1"]),
        (["--memory-fraction", "nan"], "CORE-C101", ["nan", "finite"]),
        (["--start-timeout", "inf"], "CORE-C101", ["inf", "finite"]),
        (["--dtype", "int4"], "CORE-C101", ["int4", "auto, float32, bfloat16, float16"]),
        (["--kv-memory", "lots"], "CORE-C101", ["lots", "GiB"]),
        (["--kv-memory", "0"], "CORE-C101", ["--kv-memory"]),
        (["--plugin-options", "{"], "CORE-C101", ["--plugin-options", "JSON"]),
        (["--plugin-options", '{"a": 1}'], "CORE-C101", ["--plugin-options", "name -> key -> value"]),
        (["--plugin-options", "[]"], "CORE-C101", ["--plugin-options"]),
        (["--plugin-options", '{"a": {"b": NaN}}'], "CORE-C101", ["NaN"]),
        (["--opt", "hermes"], "CORE-C106", ["NAME.KEY=VALUE"]),
        (["--opt", "hermes=1"], "CORE-C106", ["NAME.KEY=VALUE"]),
        (["--blok-size", "3"], "CORE-C104", ["--blok-size", "Did you mean '--block-size'?"]),
        (["--max_num_seq=3"], "CORE-C104", ["Did you mean '--max-num-seqs'?"]),
        (["--block-size"], "CORE-C104", ["expected one argument"]),
        (["a", "b"], "CORE-C104", ["'b'"]),
        (["--zzzz"], "CORE-C104", ["--help"]),
        (["--tensor-parallel-size", "2"], "CORE-C105", ["one worker"]),
        (["-tp", "2"], "CORE-C105", ["one worker"]),
        (["--trust-remote-code"], "CORE-C105", ["never run"]),
    ],
)
def test_mistakes_name_flag_value_and_remedy(argv, code, words):
    with pytest.raises(ConfigError) as caught:
        load(*argv)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


def test_all_bad_values_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        load("--block-size", "x", "--port", "99999", CORE_SEED="y")
    assert all(word in str(caught.value) for word in ("--block-size", "--port", "CORE_SEED"))


def test_a_secret_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        load("--plugin-options", "{}", "--port", "x", CORE_API_KEY="hunter2")
    assert "hunter2" not in str(caught.value)
    assert "--api-key" not in " ".join(to_argv(load("--api-key", "hunter2").options, secrets=False))


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=12)
_NAME = st.from_regex(r"[a-z][a-z0-9_@-]{0,8}", fullmatch=True)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)


def _values(field: OptionField) -> st.SearchStrategy:
    bounds = dict(limit.split(maxsplit=1) for limit in field.limits)
    low = float(bounds.get(">=", bounds.get(">", -1000)))
    high = float(bounds.get("<=", bounds.get("<", 10**6)))
    strategies = {
        "bool": st.booleans(),
        "int": st.integers(int(low), int(high)),
        "float": st.floats(low, high, exclude_min=">" in bounds),
        "str": _TEXT,
        "choice": st.sampled_from(field.choices or ("",)),
        "list": st.lists(_NAME, max_size=3),
        # A plugin without any option is the same as no mention of it.
        "mapping": st.dictionaries(_NAME, st.dictionaries(_TEXT, _JSON, min_size=1, max_size=2), max_size=2),
    }
    formed: dict[str, list] = {
        "kv.kv_memory": ["2GiB", "1048576", "1.5 GB"],
        "runtime.threads_bind": ["auto", "none", "0-3,8"],
    }
    formed["model.max_model_len"] = [1, 4096, -1]
    formed["hub.hf_token"] = ["hf_a.B-1", "true"]
    formed["server.root_path"] = ["", "/llm", "/a.b/c-d"]
    strategy = st.sampled_from(formed[field.path]) if field.path in formed else strategies[field.kind]
    return st.none() | strategy if field.optional else strategy


@st.composite
def all_options(draw) -> Options:
    sections: dict[str, dict] = {}
    for field in option_fields():
        if draw(st.booleans()):
            sections.setdefault(field.section, {})[field.name] = draw(_values(field))
    return Options.model_validate(sections)


@pytest.mark.covers("CLI-01")
@settings(max_examples=60, deadline=None)
@given(all_options())
def test_options_to_flags_and_back(options):
    assert load(*to_argv(options)).options == options


def _as_text(field: OptionField, got) -> str:
    if field.kind == "list":
        return ",".join(got) or "[]"  # an empty variable is one that is not set
    return json.dumps(got) if field.kind == "mapping" else str(got)


@settings(max_examples=30, deadline=None)
@given(all_options())
def test_options_to_environment_and_back(options):
    environ = {}
    for field in option_fields():
        got = value(options, field.path)
        if got != field.default and got is not None:
            environ[field.env] = _as_text(field, got)
    assert load(**environ).options == options
