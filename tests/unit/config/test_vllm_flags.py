"""A command line written for vLLM: every flag does what it says, is accepted, or is refused; none is ignored."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import pytest
from core_plugin_vllm_flags.names import NAMES, SAME, SPELLINGS
from core_plugin_vllm_flags.table import TABLE
from core_plugin_vllm_flags.translation import by_name, find, translate

from core.api.errors import ConfigError
from core.cli.commands import add_common
from core.cli.main import main
from core.config.fields import ALIASES, fields_by_path
from core.config.flags import add_option_flags
from core.config.load import AUTO, WITH_UNITS, load_options
from core.config.parser import CoreParser
from core.config.resolved import Options

USUAL = [
    "--model",
    "--served-model-name",
    "--tokenizer",
    "--revision",
    "--trust-remote-code",
    "--dtype",
    "--max-model-len",
    "--quantization",
    "--load-format",
    "--download-dir",
    "--hf-overrides",
    "--generation-config",
    "--override-generation-config",
    "--seed",
    "--runner",
    "--convert",
    "--hf-token",
    "--gpu-memory-utilization",
    "--kv-cache-dtype",
    "--kv-cache-memory-bytes",
    "--block-size",
    "--num-gpu-blocks-override",
    "--cpu-offload-gb",
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--prefix-caching-hash-algo",
    "--kv-offloading-size",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--enable-chunked-prefill",
    "--scheduling-policy",
    "--max-num-queued-reqs",
    "--max-num-queued-tokens",
    "--async-scheduling",
    "--stream-interval",
    "--long-prefill-token-threshold",
    "--watermark",
    "--tensor-parallel-size",
    "-tp",
    "--pipeline-parallel-size",
    "-pp",
    "--data-parallel-size",
    "-dp",
    "--enable-expert-parallel",
    "--distributed-executor-backend",
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--enforce-eager",
    "--compilation-config",
    "-cc",
    "-O0",
    "-O1",
    "-O2",
    "-O3",
    "--attention-backend",
    "--performance-mode",
    "--speculative-config",
    "--spec-method",
    "--spec-model",
    "--spec-tokens",
    "--enable-lora",
    "--lora-modules",
    "--max-loras",
    "--max-lora-rank",
    "--chat-template",
    "--chat-template-content-format",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "--tool-parser-plugin",
    "--reasoning-parser",
    "--default-chat-template-kwargs",
    "--tool-server",
    "--response-role",
    "--enable-force-include-usage",
    "--limit-mm-per-prompt",
    "--allowed-local-media-path",
    "--allowed-media-domains",
    "--mm-processor-kwargs",
    "--host",
    "--port",
    "--uds",
    "--api-key",
    "--root-path",
    "--allowed-origins",
    "--ssl-keyfile",
    "--ssl-certfile",
    "--ssl-ca-certs",
    "--ssl-cert-reqs",
    "--middleware",
    "--disable-fastapi-docs",
    "--h11-max-incomplete-event-size",
    "--h11-max-header-count",
    "--sse-keep-alive-interval",
    "--shutdown-timeout",
    "--disable-log-stats",
    "--enable-log-requests",
    "--max-log-len",
    "--otlp-traces-endpoint",
    "--collect-detailed-traces",
    "--show-hidden-metrics-for-version",
    "--log-level",
    "--kv-transfer-config",
    "--kv-events-config",
    "--ec-transfer-config",
    "--headless",
    "--api-server-count",
    "--grpc",
]


BOTH = ["https://a.example", "https://b.example"]


def make_parser() -> CoreParser:
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    add_common(parser)
    return parser


PARSER = make_parser()


def options(*words: str) -> Options:
    return load_options(PARSER.parse_args(list(words)), {}).options


def refusal(*words: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        options(*words)
    return caught.value


@pytest.mark.covers("CLI-01")
@pytest.mark.parametrize("flag", USUAL)
def test_every_usual_flag_is_an_option_or_in_the_table(flag):
    """An option takes effect (other tests say so); a row never lets a value through unseen."""
    if flag in PARSER._option_string_actions or flag.removeprefix("--").removeprefix("no-") in NAMES:
        assert find(flag) is None
        return
    row = find(flag).row
    assert row.why or row.words
    words = [flag] if row.takes == 0 or flag.startswith("-O") else [flag, "a-value-that-nobody-means"]
    try:
        after = translate(words, PARSER._option_string_actions)
    except ConfigError as error:
        assert error.code == "CORE-C105"
        assert flag in str(error).replace("-O ", "-O")
        assert error.hint == row.why
    else:
        # Accepted as it is so anyway, or said in our words; the value itself never gets lost on the way.
        switched = not row.takes and "true" in row.fine
        assert switched or "*" in row.fine or (set(after) & set(PARSER._option_string_actions))


def test_the_table_and_the_options_do_not_overlap():
    assert not set(by_name()) & set(PARSER._option_string_actions)
    assert sum(len(row.names) for row in TABLE) == len(by_name())
    assert set(SAME) <= set(PARSER._option_string_actions)
    assert set(SPELLINGS) | set(AUTO) | WITH_UNITS <= set(fields_by_path())
    assert not {f"--{name}" for name in NAMES} & set(by_name())
    assert {f"--{name}" for name in NAMES.values()} <= set(PARSER._option_string_actions)
    for row in TABLE:
        for words in row.words.values():
            assert next(word for word in words if word.startswith("-")) in PARSER._option_string_actions
        assert set(row.needs) <= {*PARSER._option_string_actions, *(f"--{name}" for name in NAMES)}
    assert {f"--{name}" for names in ALIASES.values() for name in names} <= set(PARSER._option_string_actions)


@pytest.mark.parametrize(
    "words",
    [
        ["-tp", "1"],
        ["-tp=1"],
        ["-tp1"],
        ["--tensor_parallel_size=1"],
        ["--pipeline-parallel-size", "1"],
        ["-dp", "1", "--nnodes", "1", "--node-rank", "0"],
        ["--distributed-executor-backend", "uni"],
        ["--cpu-offload-gb", "0"],
        ["--enable-chunked-prefill"],
        ["--no-enable-lora"],
        ["--no-trust-remote-code"],
        ["--disable-log-stats", "--disable-fastapi-docs"],
        ["--max-log-len", "100"],
        ["--generation-config", "auto"],
        ["--response-role", "assistant"],
        ["--async-scheduling"],
        ["--no-enforce-eager"],
        ["--root-path="],
        ["--root-path=/"],
        ["--no-enable-ssl-refresh", "--ssl-cert-reqs=0", "--allowed-methods", '["*"]'],
    ],
    ids=" ".join,
)
def test_what_is_so_anyway_is_accepted(words):
    assert options("smollm2", *words) == options("smollm2")
    assert options(*words, "smollm2") == options("smollm2")


@pytest.mark.parametrize(
    ("words", "path", "expected"),
    [
        (["--no-async-scheduling"], "scheduler.overlap_depth", 0),
        (["--enforce-eager"], "runtime.graphs", "none"),
        (["-O0"], "runtime.graphs", "none"),
        (["-O1"], "runtime.graphs", "decode"),
        (["--optimization-level", "3"], "runtime.graphs", "full"),
        (["-O2"], "runtime.compile", True),
        (["--kv-offloading-size", "4"], "select.kv_connector", ["cpu_offload"]),
        (["--kv-offloading-size=4"], "runtime.plugin_options", {"cpu_offload": {"capacity": "4GiB"}}),
        (["-q", "awq"], "select.quantization", "awq"),
        (["--task", "embed"], "model.convert", "embed"),
        (["--dtype", "half"], "model.dtype", "float16"),
        (["--max-model-len", "8k"], "model.max_model_len", 8000),
        (["--max-model-len", "8K"], "model.max_model_len", 8192),
        (["--max-model-len", "25.6k"], "model.max_model_len", 25600),
        (["--max-model-len", "auto"], "model.max_model_len", -1),
        (["--max-model-len=-1"], "model.max_model_len", -1),
        (["--kv-cache-memory-bytes", "4G"], "kv.kv_memory", str(4 * 2**30)),
        (["--load-format", "auto"], "select.load_format", None),
        (["--no-disable-log-requests"], "server.log_requests", True),
        (["--enable-auto-tool-choice", "--tool-call-parser", "hermes"], "select.tool_parser", "hermes"),
        (["--allowed-origins", '["https://a.example", "https://b.example"]'], "server.allowed_origins", BOTH),
        (["--allowed-origins", "https://a.example, https://b.example"], "server.allowed_origins", BOTH),
        (["--allowed-origins", "https://a.example", "--allowed-origins", BOTH[1]], "server.allowed_origins", BOTH),
        (["--ssl-cert-reqs", "2"], "server.ssl_cert_reqs", 2),
        (["--root-path", "/llm/"], "server.root_path", "/llm"),
        (["--root-path", "llm"], "server.root_path", "/llm"),
    ],
    ids=str,
)
def test_what_has_another_name_here_is_mapped(words, path, expected):
    section, name = path.split(".")
    assert getattr(getattr(options("smollm2", *words), section), name) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-tp", "2"], ["-tp 2", "one worker"]),
        (["-tp4"], ["-tp 4", "one worker"]),
        (["--tensor-parallel-size=2"], ["--tensor-parallel-size 2"]),
        (["-O4"], ["-O 4", "--compile"]),
        (["-cc", "3"], ["-cc 3", "--compile"]),
        (["-O", "4"], ["-O 4"]),
        (["--no-enable-chunked-prefill"], ["--no-enable-chunked-prefill", "chunks"]),
        (["--trust-remote-code"], ["never run"]),
        (["--speculative-config", '{"method": "ngram"}'], ["--drafter"]),
        (["--speculative-config.method=ngram"], ["--speculative-config.method", "--drafter"]),
        (["-cc.mode=3"], ["-cc.mode"]),
        (["--lora-modules", "a=b", "c=d"], ["--lora-modules a=b c=d", "LoRA"]),
        (["--enable-auto-tool-choice"], ["--tool-parser NAME"]),
        (["--kv_transfer_config", "{}"], ["--kv-connector"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_would_be_ignored_is_refused_with_a_sentence(words, said):
    error = refusal("smollm2", *words)
    assert error.code == "CORE-C105"
    for text in said:
        assert text in str(error)


def test_a_missing_value_and_an_unknown_flag():
    assert (refusal("m", "-tp").code, refusal("m", "-tp", "--port", "1").code) == ("CORE-C104", "CORE-C104")
    error = refusal("m", "--max-num-seq", "3")
    assert (error.code, error.hint) == ("CORE-C104", "Did you mean '--max-num-seqs'?")


def test_words_that_only_look_foreign_are_left_alone():
    assert options("--served-model-name", "tp").model.served_model_name == "tp"
    assert find("-1") is None and find("-0.5") is None and find("model") is None
    with pytest.raises(ConfigError) as caught:
        options("smollm2", "--no-max-log-len")
    assert caught.value.code == "CORE-C104"


def test_a_file_written_for_vllm(tmp_path):
    file = tmp_path / "config.yaml"

    def load(text: str) -> Options:
        file.write_text(text)
        return load_options(argparse.Namespace(config=str(file)), {}).options

    loaded = load(
        "model: smollm2\ntensor-parallel-size: 1\nenable_chunked_prefill: true\nasync-scheduling: false\n"
        "max-model-len: 8k\nkv-offloading-size: 2\ngpu-memory-utilization: 0.25\n"
    )
    assert loaded.scheduler.overlap_depth == 0
    assert (loaded.model.model, loaded.model.max_model_len, loaded.kv.memory_fraction) == ("smollm2", 8000, 0.25)
    assert loaded.select.kv_connector == ["cpu_offload"]
    assert loaded.runtime.plugin_options == {"cpu_offload": {"capacity": "2GiB"}}
    for text, code in (("tensor-parallel-size: 2", "C105"), ("trust-remote-code: true", "C105"), ("tensor: 1", "C102")):
        with pytest.raises(ConfigError, match=code):
            load(text)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensor-parallel-size", ["--tensor-parallel-size, -tp", "accepted     1", "one worker"]),
        ("--tensor_parallel_size", ["accepted     1"]),
        ("tp", None),
        ("async-scheduling", ["true; false: --overlap-depth 0"]),
        ("max-log-len", ["accepted     any"]),
        ("enforce-eager", ["false; true: --graphs none"]),
    ],
)
def test_a_foreign_flag_is_explained(capsys, name, said):
    status = main(["config", "explain", name])
    printed = capsys.readouterr()
    assert status == (0 if said else 2)
    for text in said or ["no option is called 'tp'"]:
        assert text in (printed.out if said else printed.err)


def test_the_page_is_up_to_date():
    tool = Path(__file__).resolve().parents[3] / "tools" / "vllm_flags.py"
    spec = importlib.util.spec_from_file_location("vllm_flags", tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.render()
    for row in TABLE:
        assert f"`{row.names[0]}`" in module.render()
