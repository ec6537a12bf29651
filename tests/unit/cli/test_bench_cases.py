from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest
from core_plugin_bench import startup
from core_plugin_bench.plot import histogram
from core_plugin_bench.report import named

from core.api.errors import EngineError
from core.cli.host.servers import AllServers
from core.cli.host.terminal import Screen
from core.cli.main import main

FAST = ["--num-prompts", "6", "--random-input-len", "5", "--random-output-len", "4"]


def bench(stub, tmp_path, *argv: str) -> tuple[int, dict]:
    path = tmp_path / "result.json"
    result = ["--save-result", "--result-dir", str(tmp_path), "--result-filename", path.name]
    status = main(["bench", "serve", "--base-url", stub.url, *FAST, *result, *argv])
    return status, json.loads(path.read_text())


@pytest.mark.covers("BENCH-01")
def test_serve(stub, tmp_path, capsys):
    status, result = bench(
        stub,
        tmp_path,
        *("--model", "org/m", "--max-concurrency", "2", "--ignore-eos", "--extra-body", '{"top_k": 3}'),
        *("--goodput", "ttft:5000", "tpot:5000", "--metric-percentiles", "50,99", "--metadata", "run=7"),
    )
    assert status == 0
    assert (result["completed"], result["failed"]) == (6, 0)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (30, 24)
    assert (result["model_id"], result["tokenizer_id"], result["backend"]) == ("org/m", "org/m", "openai")
    assert (result["request_rate"], result["burstiness"], result["max_concurrency"]) == ("inf", 1.0, 2)
    assert (result["num_prompts"], result["run"]) == (6, "7")
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert 0 < result["mean_ttft_ms"] <= result["p99_ttft_ms"] <= result["p99_e2el_ms"]
    # Four events, two milliseconds apart.
    assert result["mean_itl_ms"] >= 1.5 and result["mean_tpot_ms"] >= 1.5
    assert "itls" not in result
    assert stub.most_open <= 2 and result["max_concurrent_requests"] <= 2
    body = stub.bodies[0]
    assert len(body["prompt"]) == 5 and body["max_tokens"] == 4
    assert (body["ignore_eos"], body["top_k"], body["temperature"]) == (True, 3, 0.0)
    out, err = capsys.readouterr()
    shown = [line.split("  ") for line in out.splitlines()]
    units = {line[0]: line[-1].strip() for line in shown}
    assert (units["mean ttft"], units["output throughput"], units["duration"]) == ("ms", "tokens/s", "s")
    summary = r"summary: 6 of 6 requests in [\d.]+ s: [\d.]+ requests/s, [\d.]+ tokens/s generated, first token after "
    assert re.fullmatch(summary + r"\d+ ms \(median; p99 \d+ ms\)", out.splitlines()[-2])
    assert err.splitlines()[-1].startswith("6 of 6 requests")


def test_serve_chat_without_usage(stub, tmp_path):
    stub.usage = False
    status, result = bench(stub, tmp_path, "--backend", "openai-chat", "--save-detailed", "--num-warmups", "2")
    assert status == 0 and len(stub.bodies) == 8
    assert stub.bodies[0]["messages"][0]["role"] == "user"
    assert result["model_id"] == "stub-model"
    # The event that only names the role is no token, and neither is the last one.
    assert result["output_lens"] == [4] * 6 and {len(gaps) for gaps in result["itls"]} == {3}
    assert set(result["generated_texts"]) == {"w0 w1 w2 w3 "}
    assert result["total_output_tokens"] == 24


@pytest.mark.covers("BENCH-01")
def test_failures_are_counted_and_ten_are_shown(stub, tmp_path, capsys):
    stub.failures = 12
    status, result = bench(stub, tmp_path, "--num-prompts", "14", "--max-concurrency", "1")
    out = capsys.readouterr().out
    assert status == 0
    assert (result["completed"], result["failed"]) == (2, 12)
    assert out.count("failed: status 500: broken") == 10
    assert not any("broken" in str(value) for value in result.values())


def test_all_requests_failed(stub, tmp_path):
    stub.break_after = 1
    status, result = bench(stub, tmp_path)
    assert status == 1 and result["completed"] == 0 and result["failed"] == 6


def test_no_server_is_a_failure_of_every_request(tmp_path, capsys):
    assert main(["bench", "serve", "--base-url", "http://127.0.0.1:9", "--model", "m", *FAST]) == 1
    assert "failed: connection: no connection to 127.0.0.1:9" in capsys.readouterr().out


def test_open_loop_takes_its_time(stub, tmp_path):
    _, result = bench(stub, tmp_path, "--request-rate", "100", "--burstiness", "2", "--seed", "3")
    assert result["request_rate"] == 100.0 and result["duration"] >= 0.06
    assert result["completed"] == 6


def test_the_seed_makes_prompts_reproducible(stub, tmp_path):
    for _ in range(2):
        bench(stub, tmp_path, "--seed", "5", "--max-concurrency", "1")
    prompts = [body["prompt"] for body in stub.bodies]
    assert prompts[:6] == prompts[6:]


def test_what_goes_into_a_request(stub, tmp_path):
    bench(
        stub,
        tmp_path,
        *("--top-p", "0.9", "--top-k", "5", "--repetition-penalty", "1.1", "--logprobs", "2"),
        *("--header", "x-team=a b", "--request-id-prefix", "run-", "--served-model-name", "alias", "--model", "/m"),
        *("--trust-remote-code", "--disable-tqdm", "--tokenizer-mode", "auto"),
    )
    body = stub.bodies[0]
    assert (body["top_p"], body["top_k"], body["repetition_penalty"], body["logprobs"]) == (0.9, 5, 1.1, 2)
    assert {body["model"] for body in stub.bodies} == {"alias"}
    headers = [headers for path, headers, _ in stub.requests]
    assert {each["x-team"] for each in headers} == {"a b"}
    assert sorted(each["x-request-id"] for each in headers) == [f"run-{number}" for number in range(6)]


def test_chat_logprobs_are_those_of_chats(stub, tmp_path):
    bench(stub, tmp_path, "--backend", "openai-chat", "--logprobs", "2", "--chat-template-kwargs", '{"thinking": true}')
    body = stub.bodies[0]
    assert (body["logprobs"], body["top_logprobs"], body["chat_template_kwargs"]) == (True, 2, {"thinking": True})


def test_adapters_take_turns(stub, tmp_path):
    bench(stub, tmp_path, "--lora-modules", "a", "b", "--lora-assignment", "round-robin", "--max-concurrency", "1")
    assert [body["model"] for body in stub.bodies] == ["a", "b", "a", "b", "a", "b"]


def test_closed_loop_counts_the_time_in_the_client(stub, tmp_path):
    metrics = "e2el,client_queue_time,e2el_including_client_queue"
    _, result = bench(stub, tmp_path, "--max-concurrency", "1", "--percentile-metrics", metrics, "--save-detailed")
    assert sorted(result["queue_times"]) == result["queue_times"] and result["queue_times"][-1] > 0.03
    whole = result["mean_e2el_ms"] + result["mean_client_queue_time_ms"]
    assert result["mean_e2el_including_client_queue_ms"] == pytest.approx(whole)
    assert 0 < result["client_cpu_share"] < 5 and result["client_max_lag_ms"] >= 0


def test_prompts_of_a_file(stub, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "first", "output_tokens": 2}\n\n{"prompt": "second", "output_tokens": 3}\n')
    custom = ("--dataset-name", "custom", "--dataset-path", str(path), "--disable-shuffle", "--max-concurrency", "1")
    bench(stub, tmp_path, *custom, "--custom-output-len", "-1")
    asked = [(body["prompt"], body["max_tokens"]) for body in stub.bodies]
    assert asked == [("first", 2), ("second", 3)] * 3
    bench(stub, tmp_path, *custom, "--output-len", "9")
    assert {body["max_tokens"] for body in stub.bodies[6:]} == {9}


@pytest.mark.parametrize("text", ["{", '{"prompt": 3}', '{"text": "x"}', "[]", ""])
def test_a_file_without_prompts(stub, tmp_path, capsys, text):
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    argv = ["--dataset-name", "custom", "--dataset-path", str(path), "--model", "m"]
    assert main(["bench", "serve", "--base-url", stub.url, *argv]) == 2
    assert "--dataset-path" in capsys.readouterr().err and stub.bodies == []


def test_conversations_are_counted_by_the_server(stub, tmp_path, capsys):
    file = conversations(tmp_path / "s.json", ("one two three four", "a b c d e"), ("one two three four", "a"))
    argv = ("--dataset-name", "sharegpt", "--dataset-path", file, "--backend", "openai-chat")
    status, result = bench(stub, tmp_path, *argv)
    assert status == 0 and result["completed"] == 6
    chats = [body for path, _, body in stub.requests if "chat" in path]
    assert {(body["messages"][0]["content"], body["max_tokens"]) for body in chats} == {("one two three four", 5)}
    stub.tokenizes = False
    assert main(["bench", "serve", "--base-url", stub.url, "--model", "m", *argv]) == 2
    assert "--tokenizer" in capsys.readouterr().err


def test_prefixes_that_groups_of_prompts_share(stub, tmp_path):
    lengths = ("--prefix-repetition-prefix-len", "6", "--prefix-repetition-suffix-len", "2")
    groups = ("--prefix-repetition-num-prefixes", "3", "--prefix-repetition-output-len", "5")
    bench(stub, tmp_path, "--dataset-name", "prefix_repetition", *lengths, *groups)
    prefixes = [tuple(body["prompt"][:6]) for body in stub.bodies]
    assert sorted(prefixes.count(prefix) for prefix in set(prefixes)) == [2, 2, 2]
    assert {len(body["prompt"]) for body in stub.bodies} == {8}
    assert {body["max_tokens"] for body in stub.bodies} == {5}


def test_results_are_added_to_a_file(stub, tmp_path):
    path = tmp_path / "all.jsonl"
    argv = ["--append-result", "--result-dir", str(tmp_path), "--result-filename", path.name, "--model", "m"]
    for label in ("a", "b"):
        assert main(["bench", "serve", "--base-url", stub.url, *FAST, *argv, "--label", label]) == 0
    assert [json.loads(line)["label"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_the_load_waits_for_a_server_that_is_not_ready(stub, tmp_path):
    stub.failures, stub.fail = 3, 503
    _, result = bench(stub, tmp_path, "--ready-check-timeout-sec", "20")
    assert (result["completed"], result["failed"]) == (6, 0)
    assert len(stub.bodies) == 3 + 1 + 6


def test_a_server_that_stays_unready(stub, capsys):
    stub.failures = 100
    argv = ["--base-url", stub.url, "--model", "m", *FAST, "--ready-check-timeout-sec", "0.3"]
    assert main(["bench", "serve", *argv]) == 1
    assert "CORE-S190" in capsys.readouterr().err


@pytest.mark.covers("BENCH-01")
def test_the_clients_own_cost(tmp_path):
    path = tmp_path / "client.json"
    size = ["--num-prompts", "4", "--output-len", "20", "--gap-ms", "1"]
    assert main(["bench", "client", *size, "--output-json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert (result["failed"], result["chunks"]) == (0, 80)
    assert result["max_chunks_per_second"] == pytest.approx(1e6 / result["cpu_us_per_chunk"])


def test_the_name_of_a_ramps_result(stub, tmp_path):
    argv = ["bench", "serve", "--base-url", stub.url, *FAST, "--save-result", "--result-dir", str(tmp_path / "new")]
    ramp = ["--ramp-up-strategy", "linear", "--ramp-up-start-rps", "100", "--ramp-up-end-rps", "200"]
    assert main([*argv, *ramp, "--model", "org/m", "--label", "mine"]) == 0
    (path,) = (tmp_path / "new").iterdir()
    assert path.name.startswith("mine-ramp-up-linear-100qps-200qps-m-")
    result = json.loads(path.read_text())
    assert (result["ramp_up_start_rps"], result["ramp_up_end_rps"], result["request_rate"]) == (100, 200, "inf")


def test_the_default_name_of_the_result(stub, tmp_path):
    argv = ["bench", "serve", "--base-url", stub.url, *FAST, "--save-result", "--result-dir", str(tmp_path / "new")]
    assert main([*argv, "--model", "org/m", "--max-concurrency", "3"]) == 0
    (path,) = (tmp_path / "new").iterdir()
    assert path.name.startswith("openai-infqps-concurrency3-m-") and path.suffix == ".json"


@pytest.mark.parametrize(
    "argv",
    [
        ["--percentile-metrics", "ttft,xyz"],
        ["--metric-percentiles", "101"],
        ["--metric-percentiles", "a"],
        ["--request-rate", "0"],
        ["--random-range-ratio", "1"],
        ["--request-rate", "3", "--ramp-up-strategy", "linear"],
        ["--dataset-path", "nowhere.json", "--dataset-name", "sharegpt"],
        ["--dataset-path", "nowhere.json", "--dataset-name", "custom"],
        ["--custom-output-len", "0"],
        ["--metadata", "x"],
        ["--header", "x"],
        ["--num-prompts", "0"],
        ["--extra-body", "[]"],
        ["--extra-body", "{"],
    ],
)
def test_bad_flags_are_refused_before_any_load(stub, capsys, argv):
    assert main(["bench", "serve", "--base-url", stub.url, *argv]) == 2
    err = capsys.readouterr().err
    assert argv[0] in err or argv[0].lstrip("-") in err
    assert stub.bodies == []


class FakeLLM:
    """Generates as asked; remembers what it saw."""

    instances: list[FakeLLM]

    def __init__(self, **options):
        self.options, self.batches, self.closed = options, [], False
        self.config = SimpleNamespace(shape=SimpleNamespace(vocab_size=300), files=SimpleNamespace(name="tiny"))
        self.params = []
        type(self).instances.append(self)

    def get_tokenizer(self):
        return SimpleNamespace(encode=str.split)

    def generate(self, prompts, params):
        assert all(param.ignore_eos and param.greedy == (param.n == 1) for param in params)
        self.params += params
        ids = [prompt.split() if isinstance(prompt, str) else prompt["prompt_token_ids"] for prompt in prompts]
        self.batches.append(ids)
        return [
            SimpleNamespace(prompt_ids=given, outputs=[SimpleNamespace(token_ids=[1] * param.max_tokens)] * param.n)
            for given, param in zip(ids, params)
        ]

    def close(self):
        self.closed = True


@pytest.fixture
def llm(monkeypatch):
    FakeLLM.instances = []
    monkeypatch.setitem(sys.modules, "core.frontend.llm", SimpleNamespace(LLM=FakeLLM))
    return FakeLLM.instances


@pytest.mark.covers("BENCH-01")
def test_latency(llm, tmp_path, capsys):
    path = tmp_path / "a.json"
    argv = ["--model", "tiny", "--batch-size", "3", "--input-len", "5", "--output-len", "2", "--num-iters", "4"]
    assert main(["bench", "latency", *argv, "--warmup", "2", "--block-size", "8", "--output-json", str(path)]) == 0
    (model,) = llm
    assert model.options == {"model": "tiny", "block_size": 8} and model.closed
    assert len(model.batches) == 6 and all(len(batch) == 3 for batch in model.batches)
    # No prompt comes twice: a prefix cache has nothing to find.
    seen = [tuple(ids) for batch in model.batches for ids in batch]
    assert len(set(seen)) == len(seen) and {len(ids) for ids in seen} == {5}
    assert max(map(max, seen)) < 300  # the model's own vocabulary
    result = json.loads(path.read_text())
    assert set(result) - {"profile"} == {"model_id", "avg_latency", "latencies", "percentiles"}
    assert result["model_id"] == "tiny" and len(result["latencies"]) == 4
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 4)
    assert list(result["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert "average latency" in capsys.readouterr().out


@pytest.mark.covers("BENCH-01")
def test_throughput(llm, tmp_path):
    path = tmp_path / "a.json"
    argv = ["--num-prompts", "5", "--input-len", "6", "--output-len", "3", "--prefix-len", "2", "--num-iters", "3"]
    assert main(["bench", "throughput", *argv, "--output-json", str(path)]) == 0
    (model,) = llm
    assert [len(batch) for batch in model.batches] == [4, 5, 5, 5]
    result = json.loads(path.read_text())
    assert (result["num_requests"], result["total_num_tokens"], result["total_output_tokens"]) == (5, 5 * (8 + 3), 15)
    assert result["tokens_per_second"] == pytest.approx(result["total_num_tokens"] / result["elapsed_time"])
    assert result["requests_per_second"] == pytest.approx(5 / result["elapsed_time"])


def test_several_continuations_count_and_are_sampled(llm, tmp_path):
    path = tmp_path / "a.json"
    argv = ["--num-prompts", "2", "--input-len", "4", "--output-len", "3", "--n", "3", "--disable-detokenize"]
    assert main(["bench", "throughput", *argv, "--output-json", str(path)]) == 0
    assert json.loads(path.read_text())["total_output_tokens"] == 2 * 3 * 3
    assert {(param.n, param.detokenize) for param in llm[0].params} == {(3, False)}


def conversations(path, *pairs: tuple[str, str]) -> str:
    turns = [[{"from": "human", "value": asked}, {"from": "gpt", "value": answer}] for asked, answer in pairs]
    path.write_text(json.dumps([{"conversations": pair} for pair in turns]))
    return str(path)


def test_throughput_of_conversations(llm, tmp_path):
    path = tmp_path / "a.json"
    file = conversations(tmp_path / "s.json", ("one two three four", "a b c d e"), ("too short", "a b c d"))
    argv = ["--dataset-name", "sharegpt", "--dataset-path", file, "--num-prompts", "3", "--warmup", "0"]
    assert main(["bench", "throughput", *argv, "--output-json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert (result["total_output_tokens"], result["total_num_tokens"]) == (15, 3 * (4 + 5))
    assert llm[0].batches == [[["one", "two", "three", "four"]] * 3]


def test_conversations_need_a_file(llm, capsys):
    assert main(["bench", "throughput", "--dataset-name", "sharegpt"]) == 2
    assert "--dataset-path" in capsys.readouterr().err


def test_the_model_is_released_when_a_run_fails(llm, monkeypatch):
    monkeypatch.setattr(FakeLLM, "generate", lambda self, prompts, params: 1 / 0)
    assert main(["bench", "throughput", "--num-prompts", "1"]) == 1
    assert llm[0].closed


SERVER = """
import http.server, signal, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
ready = time.monotonic() + 0.15
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if time.monotonic() > ready and self.path == "/ready" else 503)
        self.end_headers()
    def log_message(self, *args): pass
signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], "a").write("ended "), sys.exit(0)))
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.covers("BENCH-02")
def test_startup(monkeypatch, tmp_path, capsys):
    mark, path = tmp_path / "mark", tmp_path / "a.json"
    flags: list[list[str]] = []

    def command(servers, given):
        flags.append(given)
        return [sys.executable, "-c", SERVER, str(mark)]

    monkeypatch.setattr(AllServers, "command", command)
    monkeypatch.setattr(AllServers, "files", lambda servers, options: [mark])
    dropped: list[list] = []
    monkeypatch.setattr(startup, "drop_pages", dropped.append)
    argv = [
        "--num-iters-cold",
        "1",
        "--num-iters-warm",
        "2",
        "--warmup",
        "1",
        "--model",
        "tiny",
        "--api-key",
        "hunter2",
    ]
    assert main(["bench", "startup", *argv, "--output-json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert len(result["cold_startup_times"]) == 1 and len(result["warm_startup_times"]) == 2
    assert all(0.15 <= seconds < 30 for seconds in result["cold_startup_times"] + result["warm_startup_times"])
    assert result["avg_warm_startup_time"] == pytest.approx(sum(result["warm_startup_times"]) / 2)
    assert list(result["cold_startup_percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert mark.read_text() == "ended " * 4
    assert dropped == [[mark]]
    assert flags == [["--model=tiny"]] * 4


def test_dropping_pages_leaves_the_file_as_it_is(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"x" * 100_000)
    startup.drop_pages([path])
    assert path.read_bytes() == b"x" * 100_000


def test_startup_command_is_the_server():
    assert AllServers().command(["--port=1"])[1:] == ["-m", "core.cli", "serve", "--port=1"]


def test_a_server_that_dies(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('CORE-M101 no such model')"]
    with pytest.raises(EngineError, match=r"CORE-E190 .*status 1.*CORE-M101 no such model"):
        startup.measure(command, {}, 20.0)


def test_a_server_that_never_gets_ready():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(EngineError, match="did not get ready in time"):
        startup.measure(command, {}, 0.3)


@pytest.mark.parametrize("flag", ["--disable-tqdm", "--no-progress"])
def test_progress_can_be_left_out(stub, tmp_path, capsys, flag):
    bench(stub, tmp_path, flag)
    assert capsys.readouterr().err == ""


def test_latencies_are_drawn_on_demand(stub, tmp_path, capsys):
    bench(stub, tmp_path, "--plot", "--percentile-metrics", "ttft,e2el")
    out = capsys.readouterr().out
    assert "Time to first token, ms (6 samples)" in out and "End-to-end latency, ms (6 samples)" in out
    counts = re.findall(r"^ *[\d.]+ to [\d.]+ +(\d+)(?:  [█▏▎▍▌▋▊▉]+)?$", out, re.MULTILINE)
    assert sum(map(int, counts)) == 2 * 6


def test_a_batch_s_times_are_drawn_and_summed_up(llm, capsys):
    argv = ["--model", "tiny", "--batch-size", "3", "--input-len", "5", "--output-len", "2", "--num-iters", "4"]
    assert main(["bench", "latency", *argv, "--warmup", "1", "--plot"]) == 0
    out, err = capsys.readouterr()
    assert "Time of a batch, s (4 samples)" in out and "█" in out
    assert "\nsummary: a batch of 3 requests of 5 tokens, 2 generated, takes 0." in out
    assert err.splitlines() == ["1 of 1 warm-up batches", *(f"{done} of 4 batches" for done in (1, 2, 3, 4))]


@pytest.mark.parametrize(
    ("samples", "lines"),
    [
        ([1.0, 1.0], ["1.00 to 1.00  2  " + 40 * "█"]),
        ([5.0], ["5.00 to 5.00  1  " + 40 * "█"]),
    ],
)
def test_samples_that_are_all_the_same_are_one_bar(samples, lines):
    assert histogram(Screen(), samples).splitlines() == lines


def test_bars_are_in_proportion_and_the_tail_is_the_last(monkeypatch):
    samples = [float(value) for value in [1] * 100 + [2] * 50 + [3] * 25 + [4] * 25 + [100]]
    rows = [line.split() for line in histogram(Screen(), samples).splitlines()]
    assert [row[3] for row in rows if row[3] != "0"] == ["100", "50", "25", "25", "1"]
    assert [len(row[4]) for row in rows if len(row) > 4][:4] == [40, 20, 10, 10]
    assert rows[-1][:3] == ["4.00", "to", "100.00"]
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, histogram(Screen(), samples).splitlines())) <= 40


@pytest.mark.parametrize(
    ("key", "named_"),
    [
        ("p99.9_itl_ms", ("p99.9 itl", "ms")),
        ("total_input_tokens", ("total input", "tokens")),
        ("max_output_tokens_per_s", ("max output tokens per s", "tokens/s")),
        ("client_cpu_share", ("client cpu share", "of a core")),
        ("model_id", ("model id", "")),
    ],
)
def test_figures_have_units(key, named_):
    assert named(key) == named_
