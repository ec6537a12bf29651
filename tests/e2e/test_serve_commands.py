"""The `core` command as a user types it: what it says when it cannot start, and what it prints and writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

ENDING = 30


@pytest.fixture
def broken(tmp_path, tiny):
    """A copy of the tiny checkpoint to damage."""
    return Path(shutil.copytree(tiny, tmp_path / "broken"))


@pytest.fixture
def serve(core):
    def serve(*words):
        return core("serve", "--port", "0", "--threads", "1", "--num-blocks", "40", *words, timeout=ENDING)

    return serve


def assert_failed(result, code: str, *needed: object, status: int = 1) -> None:
    """The command ended with one line that has the code and what is needed; progress may stand before it."""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("loading weights: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith(f"core: {code} "), lines[0]
    for text in needed:
        assert str(text) in lines[0]
    assert "Traceback" not in result.stdout
    assert "ready:" not in result.stdout
    assert result.returncode == status


def weights_of(checkpoint: Path) -> Path:
    (weights,) = checkpoint.glob("*.safetensors")
    return weights


# -- what cannot start -------------------------------------------------------------------------------------------------


@pytest.mark.covers("MODEL-02")
@pytest.mark.parametrize("size", [100, 2_000_000], ids=["in the header", "in the data"])
def test_a_gguf_file_that_was_cut(serve, demo_file, tmp_path, size):
    cut = tmp_path / "cut.gguf"
    with demo_file.open("rb") as whole:
        cut.write_bytes(whole.read(size))
    assert_failed(serve(cut), "CORE-M141", cut)


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "CORE-M102"), (b"GGUF", "CORE-M102"), (bytes(range(256)) * 40, "CORE-M102")],
    ids=["empty", "magic", "noise"],
)
def test_a_file_that_is_only_called_gguf(serve, tmp_path, data, code):
    fake = tmp_path / "fake.gguf"
    fake.write_bytes(data)
    assert_failed(serve(fake), code, fake)


@pytest.mark.covers("MODEL-02")
def test_safetensors_that_were_cut(serve, broken):
    weights = weights_of(broken)
    weights.write_bytes(weights.read_bytes()[:-500])
    assert_failed(serve(broken), "CORE-M130", weights, "tensor '")


@pytest.mark.covers("MODEL-02")
def test_a_tensor_that_is_missing(serve, broken):
    from safetensors.numpy import load_file, save_file

    weights = weights_of(broken)
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    assert_failed(serve(broken), "CORE-M121", "lacks 1 tensor of the model: model.layers.1.mlp.up_proj.weight")


def test_an_architecture_that_nobody_implements(serve, broken):
    path = broken / "config.json"
    config = {**json.loads(path.read_text()), "architectures": ["Mistral9ForCausalLM"], "model_type": "future"}
    path.write_text(json.dumps(config))
    assert_failed(serve(broken), "CORE-M103", "Mistral9ForCausalLM", "nearest", "MistralForCausalLM (")


def test_a_rotary_scaling_that_nobody_computes(serve, tiny):
    assert_failed(serve(tiny, "--rope-scaling", '{"rope_type": "foo"}'), "CORE-M125", "'foo'", "proportional, yarn")
    assert_failed(serve(tiny, "--rope-scaling", '{"rope_type": "yarn"}'), "CORE-M125", "needs a number 'factor'")


def test_files_that_are_missing_or_no_json(serve, broken):
    (broken / "config.json").write_text("{")
    assert_failed(serve(broken), "CORE-M131", broken / "config.json")


def test_weights_that_could_run_code_are_refused(serve, broken):
    weights_of(broken).rename(broken / "pytorch_model.bin")
    assert_failed(serve(broken), "CORE-M133", "pytorch_model.bin", "safetensors", "python -c", "weights_only=True")


def test_a_tokenizer_in_code_of_the_checkpoint_is_refused(serve, broken):
    (broken / "tokenizer.json").rename(broken / "own.model")
    settings = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    (broken / "tokenizer_config.json").write_text(json.dumps(settings))
    assert_failed(serve(broken), "CORE-M110", "own.model", "OwnTokenizer", "never run")
    (broken / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer"}))
    assert_failed(serve(broken), "CORE-M110", "T5Tokenizer", "save_pretrained")


def test_a_vocabulary_without_tokenizer_json_is_served(launch, tiny_server, broken):
    from tokenizers import Tokenizer

    Tokenizer.from_file(str(broken / "tokenizer.json")).model.save(str(broken))
    (broken / "tokenizer.json").unlink()
    settings = json.loads((broken / "tokenizer_config.json").read_text())
    (broken / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "GPT2Tokenizer"}))
    words = ("--threads", "1", "--dtype", "float32", "--num-blocks", "400", "--served-model-name", "tiny")
    server = launch(str(broken), *words).wait_ready()
    talk = {"model": "tiny", "messages": [{"role": "user", "content": "the engine reads"}]}
    answers = []
    for one in (server, tiny_server):
        with one.http() as http:
            body = {**talk, "temperature": 0, "max_tokens": 8}
            answers.append(http.post("/v1/chat/completions", json=body).json())
    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[0]["usage"]["prompt_tokens"] == answers[1]["usage"]["prompt_tokens"]


def test_references_to_nothing(serve, tmp_path):
    assert_failed(serve(tmp_path / "nowhere"), "CORE-M104", tmp_path / "nowhere")
    assert_failed(serve("no-such-thing"), "CORE-M101", "no-such-thing", "local, hub, ", "smollm2")


@pytest.mark.covers("CLI-01", "ATTN-02")
def test_options_that_cannot_be_met(serve, tiny):
    assert_failed(serve(tiny, "--attention-backend", "flashy"), "CORE-P101", "'flashy'", "Installed:", "torch_sdpa")
    longer = serve(tiny, "--max-model-len", "100000")
    assert_failed(longer, "CORE-C110", "100000", "--max-model-len 1024", status=2)
    assert_failed(serve(tiny, "--quantization", "gguf"), "CORE-P201", "'gguf'", "--quantization")
    small = serve(tiny, "--num-blocks", "3")
    assert_failed(small, "CORE-E120", "3 blocks", "1024 tokens", "--max-model-len (auto")
    assert "loading weights" not in small.stderr


def test_a_server_lowers_its_context_where_it_is_told_to(launch, tiny):
    server = launch(str(tiny), "--threads", "1", "--num-blocks", "5", "--max-model-len", "auto").wait_ready()
    with server.http() as http:
        assert http.get("/v1/models").json()["data"][0]["max_model_len"] == 128  # four blocks of 32
    assert "CORE-C210 the context is 128 tokens instead of 1024" in server.stderr
    assert "up to 1024 tokens" in server.stdout


@pytest.mark.covers("CLI-01", "QUANT-01")
def test_what_nobody_reads_is_refused_before_the_engine_starts(serve, broken):
    config = json.loads((broken / "config.json").read_text())
    weights = {"num_bits": 3, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
    stored = {"format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    quantized = {**config, "quantization_config": {"quant_method": "compressed-tensors", **stored}}
    (broken / "config.json").write_text(json.dumps(quantized))
    assert_failed(serve(broken), "CORE-P203", "num_bits 3, not 4 or 8", "W3A16", "compressed-tensors", "gguf")
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "tokenizer.json").unlink()
    assert_failed(serve(broken), "CORE-M110", "no tokenizer.json")


@pytest.mark.covers("CLI-01")
@pytest.mark.parametrize(
    ("words", "code", "needed"),
    [
        (("--dtype", "float8"), "CORE-C101", ("--dtype", "'float8'", "bfloat16")),
        (("--port", "99999"), "CORE-C101", ("--port", "99999", "65535")),
        (("--port", "http"), "CORE-C101", ("--port", "'http'")),
        (("--kv-memory", "lots"), "CORE-C101", ("--kv-memory", "'lots'", "GiB")),
        (("--max-model-lenn", "5"), "CORE-C104", ("--max-model-lenn", "--max-model-len")),
        (("--config", "nowhere.yaml"), "CORE-C103", ("nowhere.yaml",)),
    ],
    ids=["dtype", "range", "type", "size", "flag", "file"],
)
def test_wrong_usage(core, words, code, needed):
    assert_failed(core("serve", "smollm2", *words, timeout=ENDING), code, *needed, status=2)


def test_debug_shows_where_it_came_from(serve, tiny):
    result = serve(tiny, "--attention-backend", "flashy", "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "CORE-P101" in result.stderr.splitlines()[-1]


# -- what answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/v1"])
def test_complete_and_chat_print_the_servers_answer(core, server, path):
    url, greedy = server.url + path, ("--temperature", "0", "--max-tokens", "8")
    result = core("complete", "--url", url, "-q", "The capital of France is", *greedy, "--stats")
    assert (result.returncode, result.stdout.startswith(" Paris")) == (0, True)
    assert "8 tokens]" in result.stderr
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    with server.http() as http:
        body = {"messages": messages, "temperature": 0, "max_tokens": 8}
        # Twice: with its prefix in the cache, a prompt's last rows go through the products for few rows, which round
        # activations of a quantized checkpoint otherwise. The command below finds the cache as the second one does.
        http.post("/v1/chat/completions", json=body)
        answer = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    result = core("chat", "--url", url, "-q", messages[0]["content"], *greedy)
    assert (result.returncode, result.stdout, result.stderr) == (0, answer + "\n", "")


def test_clients_say_what_is_wrong(core, server):
    assert_failed(core("complete", "--url", "http://127.0.0.1:9", "-q", "x"), "CORE-S190", "127.0.0.1:9", "core serve")
    other = core("chat", "--url", server.url, "-q", "x", "--model-name", "gpt-9")
    assert_failed(other, "CORE-S191", "gpt-9", "smollm2")
    endless = core("complete", "--url", server.url, "-q", "x", "--max-tokens", "5000")
    assert_failed(endless, "CORE-S191", "maximum context length")


@pytest.mark.covers("BENCH-01")
def test_bench_latency_writes_its_result(core, tiny, tmp_path):
    path = tmp_path / "latency.json"
    size = ("--batch-size", "2", "--input-len", "8", "--output-len", "4", "--num-iters", "2", "--warmup", "1")
    result = core("bench", "latency", "--model", tiny, *size, "--threads", "1", "--output-json", path)
    assert result.returncode == 0, result.stderr
    data = json.loads(path.read_text())
    assert {"model_id", "avg_latency", "latencies", "percentiles"} <= set(data)
    assert len(data["latencies"]) == 2
    assert 0 < min(data["latencies"]) <= data["avg_latency"] <= max(data["latencies"])


@pytest.mark.covers("BENCH-01")
@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_bench_serve_writes_its_result(core, server, tmp_path, backend):
    load = ("--num-prompts", "4", "--random-input-len", "8", "--random-output-len", "4", "--ignore-eos")
    where = ("--save-result", "--result-dir", tmp_path, "--result-filename", "serve.json")
    result = core("bench", "serve", "--backend", backend, "--base-url", server.url, *load, *where)
    assert result.returncode == 0, result.stderr
    data = json.loads((tmp_path / "serve.json").read_text())
    assert (data["completed"], data["failed"], data["total_output_tokens"]) == (4, 0, 16)
    assert (data["backend"], data["model_id"], data["num_prompts"]) == (backend, "smollm2", 4)
    assert data["output_throughput"] == pytest.approx(16 / data["duration"])
    for metric in ("ttft", "tpot", "itl", "e2el"):
        assert data[f"mean_{metric}_ms"] > 0
        assert data[f"median_{metric}_ms"] <= data[f"p99_{metric}_ms"]
    assert data["mean_ttft_ms"] < data["mean_e2el_ms"] <= data["duration"] * 1e3
    assert "Serving benchmark" in result.stdout


def test_bench_serve_fails_when_every_request_does(core, server):
    load = ("--num-prompts", "2", "--random-input-len", "8", "--random-output-len", "5000")
    result = core("bench", "serve", "--base-url", server.url, *load)
    assert result.returncode == 1
    assert "maximum context length" in result.stdout + result.stderr


def test_collect_env(core):
    result = core("collect-env", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    assert {"core", "system", "cpu", "memory", "packages", "plugins", "environment"} <= set(facts)
    assert "torch" in facts["packages"]
    assert any("core-plugin-cpu" in name or "core-plugin-cpu" in str(value) for name, value in facts["plugins"].items())


@pytest.mark.covers("PLAT-01", "ATTN-02")
def test_plugins_why(core, server):
    result = core("plugins", "why", "--model", "smollm2", "--json")
    assert result.returncode == 0, result.stderr
    chosen = {one["group"]: one["chosen"] for one in json.loads(result.stdout)["selections"] if one["chosen"]}
    assert chosen["core.platforms"] == "cpu"
    assert (chosen["core.model_sources"], chosen["core.weight_loaders"]) == ("smollm2", "gguf")
    assert chosen["core.models"] == "llama"
    assert {"core.attention_backends", "core.quantization", "core.executors", "core.schedulers"} <= set(chosen)
    with server.http() as http:  # the running server chose the same
        served = http.get("/core/plugins").json()["selections"]
    assert {one["group"]: one["chosen"] for one in served if one["chosen"]} == chosen
