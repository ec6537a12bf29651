"""The comparison of engines (`benchmarks/compare`): what it keeps, how it judges, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def store(tmp_path):
    from benchmarks.compare.store import Store

    return Store(tmp_path / "results")


def offline(decode, *, peak=500.0, **rates):
    values = {"decode": decode, "batch": [1.0], "prefill": [1.0], **rates}
    return {
        "when": "2026-01-02 03:04",
        "busy": 0.0,
        "data": {"tokens_per_s": values, "ready_s": [3.0], "peak_mib": peak},
    }


def test_results_are_kept_and_only_failures_are_tried_again(store):
    assert not store.has("core-bf16", "offline", 1)
    store.put("core-bf16", "offline", 1, offline([1.0]))
    store.put("core-bf16", "offline", 2, {"error": "it broke"})
    assert store.has("core-bf16", "offline", 1) and not store.has("core-bf16", "offline", 2)
    assert [record["round"] for record in store.all("core-bf16", "offline")] == [1]
    assert store.errors("core-bf16", "offline") == ["it broke"]
    noisy = offline([1.0])
    noisy["data"]["others"] = 0.3
    store.put("core-bf16", "offline", 3, noisy)
    assert store.has("core-bf16", "offline", 3, others=0.3) and not store.has("core-bf16", "offline", 3, others=0.29)
    store.forget("core-bf16", "offline")
    assert store.all("core-bf16", "offline") == [] == store.errors("core-bf16", "offline")


def test_figures_are_medians_over_all_rounds(store):
    from benchmarks.compare.figures import figure

    store.put("core-bf16", "offline", 1, offline([100.0, 104.0]))
    store.put("core-bf16", "offline", 2, offline([96.0, 101.0, 140.0]))
    found = figure(store, "core-bf16", "decode")
    assert found.median == 101.0 and found.spread == pytest.approx(44 / 101)
    assert found.text() == "101 (96-140)"
    assert figure(store, "core-bf16", "memory").median == 500 - 192
    assert figure(store, "core-bf16", "ready").median == 3.0
    assert figure(store, "vllm-bf16", "decode") is None


@pytest.mark.parametrize(("ours", "met"), [(124.0, False), (125.0, True)])
def test_a_goal_compares_with_the_best_peer(store, ours, met):
    from benchmarks.compare.cases import Goal
    from benchmarks.compare.figures import judge

    goal = Goal("g", "decode", 1.25, ("core-int8", "core-bf16"), ("llama-bf16", "vllm-bf16"))
    assert judge(store, goal).met is None
    for variant, rate in (("llama-bf16", 90.0), ("vllm-bf16", 100.0), ("core-int8", 50.0), ("core-bf16", ours)):
        store.put(variant, "offline", 1, offline([rate]))
    verdict = judge(store, goal)
    assert (verdict.ours.variant, verdict.peer.variant, verdict.met) == ("core-bf16", "vllm-bf16", met)
    assert verdict.ratio == ours / 100


def test_a_goal_of_latency_is_met_from_below(store):
    from benchmarks.compare.cases import Goal
    from benchmarks.compare.figures import judge

    goal = Goal("g", "c8:median_ttft_ms", 0.7, ("core-bf16",), ("vllm-bf16",), lower=True)
    for variant, value in (("core-bf16", 69.0), ("vllm-bf16", 100.0)):
        store.put(variant, "server", 1, {"data": {"c8": {"median_ttft_ms": value}}})
    assert judge(store, goal).met is True


def test_every_goal_names_variants_and_figures_that_are_measured():
    from benchmarks.compare.cases import CONCURRENCIES, GOALS, GROUPS, OFFLINE
    from benchmarks.compare.variants import SHAPE_GOALS, VARIANTS

    known = {variant.name: variant for variant in VARIANTS}
    loads = {f"c{count}" for count in CONCURRENCIES}
    for goal in (*GOALS, *(goal for goals in SHAPE_GOALS.values() for goal in goals)):
        load = goal.figure.partition(":")[0]
        group = "server" if load in loads else "offline"
        assert load in loads | {"memory"} | {case.name for case in OFFLINE}
        assert all(group in known[name].groups for name in goal.ours + goal.peers)
        assert all(known[name].engine == "core" for name in goal.ours)
    assert all(set(variant.groups) <= set(GROUPS) for variant in VARIANTS)


def engine_record() -> dict:
    return {
        "when": "2026-01-02 03:04",
        "data": {
            "commands": {"core --help": 0.2},
            "scaling": {"32": 1000.0, "256": 900.0},
            "prefill": {"512": 5000.0},
            "prefix": {
                "requests": 64,
                "prompt_tokens": 129024,
                "computed_tokens": 3024,
                "seconds": 1.0,
                "ttft_miss_ms": 400.0,
                "ttft_hit_ms": 20.0,
            },
        },
    }


def test_the_page_says_what_was_met_what_was_missed_and_what_is_missing(store, tmp_path):
    from benchmarks.compare import report

    docs = tmp_path / "docs"
    docs.mkdir()
    for variant, rate in (("core-bf16", 130.0), ("vllm-bf16", 100.0), ("llama-bf16", 150.0)):
        store.put(variant, "offline", 1, offline([rate]))
    store.put("core-int8", "offline", 1, {"error": "CORE-P201 no such plugin"})
    store.put("core-bf16", "engine", 1, engine_record())
    step = {"rows": 1000, "median_us": 400.0}
    api = {"streams": 32, "request_us": 1200.0, "chunk_us": 12.5}
    overhead = {"engine_overhead": [step], "api_overhead": [api]}
    store.put("core-bf16", "overhead", 1, {"when": "2026-01-02 03:04", "data": overhead})
    report.write(docs, store, SimpleNamespace(facts=lambda: {"vllm": {"torch": "2.13.0"}, "llama": {"error": "x"}}))
    page = (docs / "benchmarks.md").read_text()
    rows = {row.split(" | ")[0].strip("| "): row for row in page.splitlines() if row.startswith("|")}
    assert "| 130 [core-bf16] | 100 [vllm-bf16] | 1.30 | >= 1.25 | met |" in rows["(i) bf16, beside vLLM"]
    assert "| 0.87 | >= 1 | missed |" in rows["(i) bf16, beside llama.cpp"]
    assert "| not measured |" in rows["(i) int8"]
    assert "0.90 | >= 1 | missed" in rows["output tok/s of 256 requests beside 32"]
    assert "0.05 | <= 0.1 | met" in rows["time to first token of a prefix hit beside a miss, ms"]
    assert "| 400 |  |  | <= 500 | met |" in rows["schedule and settle, 1,000 running requests, us a step"]
    assert "| 1,200 |  |  | <= 1000 | missed |" in rows["CPU of the server, 32 streams, us a request"]
    assert "3,024 of 129,024" in page
    assert "- core-int8 offline: CORE-P201 no such plugin" in page
    assert "vllm-w8a8 server" in next(row for row in page.splitlines() if row.endswith(": not run yet"))
    assert "- vllm: torch 2.13.0" in page
    assert str(tmp_path) not in page and str(Path.home()) not in page


CHILD = """
import json, subprocess, sys, time
grown = b"x" * (60 * 2**20)
child = subprocess.Popen([sys.executable, "-c", "x = b'x' * (80 * 2**20); import time; time.sleep(1)"])
time.sleep(0.8)
child.wait()
print("noise")
print("RESULT " + json.dumps({"a": 1}))
"""


def test_a_measurement_has_its_result_and_the_memory_of_all_its_processes():
    from benchmarks.compare.process import measure

    measured = measure([sys.executable, "-c", CHILD], {}, 30.0)
    assert measured.result == {"a": 1}
    assert 140 < measured.peak_mib < 250


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; print('why not'); sys.exit(3)", "status 3: why not"),
        ("print('done')", "status 0: done"),
        ("import time; time.sleep(60)", "not done within 0.5 s"),
    ],
)
def test_a_measurement_that_fails_says_why(code, why):
    from benchmarks.compare.process import MeasurementError, measure

    with pytest.raises(MeasurementError, match=why):
        measure([sys.executable, "-c", code], {}, 0.5 if "sleep" in code else 30.0)


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "compare" / "runners"))
    import common

    return common


def test_runners_time_repeats_and_refuse_a_short_answer(runner):
    case = {"name": "a", "batch": 2, "input_len": 3, "output_len": 4}
    seen = []

    def generate(prompts, output_len):
        seen.append(prompts)
        return len(prompts) * output_len

    found = runner.time_cases({"cases": [case], "repeats": 2}, generate)
    assert len(found["a"]) == 2 and len(seen) == 3
    assert len({tuple(ids) for prompts in seen for ids in prompts}) == 6  # no prompt comes twice
    with pytest.raises(SystemExit, match="7 tokens instead of 8"):
        runner.time_cases({"cases": [case], "repeats": 1}, lambda *_: 7)
    seen.clear()
    assert len(runner.time_cases({"cases": [{**case, "once": True}], "repeats": 5}, generate)["a"]) == len(seen) == 1
    assert 0 < runner.since_start() < 3600


def test_behind_a_prompt_in_the_cache_the_tokens_after_the_first_are_timed(runner, monkeypatch):
    case = {"name": "a", "batch": 1, "input_len": 1000, "output_len": 33, "once": True, "held": True}
    now, cached = [0.0], set()
    monkeypatch.setattr(runner.time, "perf_counter", lambda: now[0])

    def generate(prompts, output_len):
        now[0] += (0.1 if tuple(prompts[0]) in cached else 60.0) + 0.5 * (output_len - 1)
        cached.add(tuple(prompts[0]))
        return output_len

    found = runner.time_cases({"cases": [case], "repeats": 2}, generate)["a"]
    assert found == pytest.approx([16.0, 16.0])


@pytest.mark.parametrize(
    ("more", "streams", "due"),
    [({}, "2,2,2", [6.4, 6.4]), ({"once": True}, "2", [6.4]), ({"once": True, "held": True}, "2", [2.4])],
)
def test_the_first_token_of_llama_cpp_comes_with_the_prompt(runner, monkeypatch, more, streams, due):
    import run_llama

    def ran(command, **_):
        assert command[command.index("-npl") + 1] == streams and command[command.index("-c") + 1] == "8202"
        rows = [json.dumps({"t_pp": 4.0, "t_tg": 3.0}) for _ in streams.split(",")]
        return SimpleNamespace(stdout="\n".join(["main: x", *rows]))

    monkeypatch.setattr(run_llama.subprocess, "run", ran)
    case = {"batch": 2, "input_len": 4096, "output_len": 5, "once": False, "held": False, **more}
    spec = {"flags": ["llama-batched-bench"], "model": "m.gguf", "threads": 2, "repeats": 2}
    assert run_llama.time_case(spec, case) == pytest.approx(due)


def test_what_others_use_of_the_machine_is_seen(runner):
    burn = "import time; end = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass"
    look = "import time, common; time.sleep(0.8); print(common.others())"
    folder = str(Path(runner.__file__).parent)
    busy = subprocess.Popen([sys.executable, "-c", burn], start_new_session=True)
    seen = subprocess.run([sys.executable, "-c", look], cwd=folder, capture_output=True, text=True, check=True)
    spent = runner.cpu_seconds(busy.pid)
    busy.wait()
    assert float(seen.stdout) > 0.2 / os.cpu_count()
    assert spent > 0.2


def test_a_tool_that_is_told_nonsense_says_so():
    from benchmarks.compare import __main__ as tool

    for argv in (["--only", "nobody"], ["--only", "core,*@avx3"], ["--groups", "x"], ["--refresh", "y"]):
        sys_argv, sys.argv = sys.argv, ["compare", *argv]
        try:
            with pytest.raises(SystemExit) as caught:
                tool.main()
        finally:
            sys.argv = sys_argv
        assert caught.value.code == 2


def test_a_run_resumes_where_it_ended(monkeypatch, tmp_path):
    from benchmarks.compare import __main__ as tool

    ran, docs = [], tmp_path / "repo" / "docs"
    docs.mkdir(parents=True)
    monkeypatch.setattr(tool, "ROOT", docs.parent)
    monkeypatch.setattr(tool.models, "prepare", lambda folder, form: folder / form)

    def measure(setting, group):
        ran.append((setting.variant.name, group, setting.gate))
        if len(ran) == 2:
            raise tool.MeasurementError("it broke")
        return offline([1.0])["data"]

    monkeypatch.setattr(tool.groups, "measure", measure)
    argv = ["compare", "--peers", str(tmp_path), "--only", "transformers", "--rounds", "1", "--gate", "alone now"]
    for extra in ([], [], ["--refresh", "transformers-fp32"]):
        monkeypatch.setattr(sys, "argv", [*argv, *extra])
        tool.main()
    # Both, then the one that failed, then the one that is to be measured again.
    names = [name for name, *_ in ran]
    assert names == ["transformers-bf16", "transformers-fp32", "transformers-fp32", "transformers-fp32"]
    assert {gate for *_, gate in ran} == {("alone", "now")}
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert len(records) == 2 and not any("error" in record for record in records)
    assert "transformers-bf16" in (docs / "benchmarks.md").read_text()


@pytest.mark.parametrize(("streams", "seconds"), [(1, 0.002), (32, 0.0048), (1000, 0.15)])
def test_few_streams_are_not_kept_waiting_by_the_stub(monkeypatch, streams, seconds):
    """With one stream and the interval of a thousand, the overhead group took a quarter of an hour."""
    from benchmarks import api_overhead

    async def measured(server, streams, tokens):
        return {"port": server.port, "streams": streams}

    class Server:
        """Says its port, and remembers how it was started."""

        pid = 1

        def __init__(self, command, **kwargs):
            self.stdout = SimpleNamespace(readline=lambda: "4321\n")
            commands.append(command)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def kill(self):
            """It is none."""

    commands = []
    monkeypatch.setattr(api_overhead.subprocess, "Popen", Server)
    monkeypatch.setattr(api_overhead, "measure", measured)
    assert api_overhead.measure_alone(streams, 64, 150e-6, "/v1/messages") == {"port": 4321, "streams": streams}
    assert float(commands[0][commands[0].index("--serve") + 1]) == pytest.approx(seconds)
