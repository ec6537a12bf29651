from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from core_plugin_bench.arrivals import Arrivals
from core_plugin_bench.metrics import Record, Run, details, meets, parse_goodput, summarize
from core_plugin_bench.prompts import RandomPrompts, as_text
from core_plugin_bench.report import append, save
from core_plugin_bench.stats import describe, peak_in_windows, peak_overlap, percentile_key, quantiles
from hypothesis import given, settings
from hypothesis import strategies as st

from core.api.errors import ConfigError
from core.cli.host.processes import Files


def record(start: float, ttft: float, gaps: list[float], **fields) -> Record:
    fields = {"input_len": 10, "output_len": 1 + len(gaps), **fields}
    return Record(start=start, ttft=ttft, itl=gaps, latency=ttft + sum(gaps), **fields)


@pytest.mark.covers("BENCH-01")
def test_a_scripted_timeline_gives_the_figures_of_a_hand_calculation():
    records = [
        record(0.0, 0.1, [0.1, 0.3]),
        record(1.0, 0.3, [0.1], input_len=20),
        record(1.1, 0.2, []),
        Record(start=0.0, input_len=99, error="refused"),
    ]
    figures = summarize(
        Run(records, 2.0, client_cpu=0.5),
        metrics=["ttft", "tpot", "itl", "e2el"],
        percentiles=[50, 99.9],
        objectives={"ttft": 250},
    )
    assert figures["completed"] == 3 and figures["failed"] == 1
    assert (figures["total_input_tokens"], figures["total_output_tokens"]) == (40, 6)
    assert figures["request_throughput"] == 1.5
    assert figures["output_throughput"] == 3.0
    assert figures["total_token_throughput"] == 23.0
    assert figures["request_goodput"] == 1.0
    assert figures["mean_ttft_ms"] == pytest.approx(200)
    assert figures["median_ttft_ms"] == pytest.approx(200)
    assert figures["std_ttft_ms"] == pytest.approx(math.sqrt(20000 / 3))
    # Time per token: 0.4 / 2 and 0.1 / 1; a single token has none.
    assert figures["mean_tpot_ms"] == pytest.approx(150)
    assert figures["mean_itl_ms"] == pytest.approx(500 / 3)
    assert figures["p50_e2el_ms"] == pytest.approx(400)
    assert figures["p99.9_itl_ms"] == pytest.approx(100 + 200 * (2 * 0.999 - 1))
    assert figures["max_concurrent_requests"] == 2
    assert figures["client_cpu_share"] == 0.25
    # Arrivals at 0.1, 0.2, 0.5, 1.3, 1.4, 1.3: two windows of a second with three each.
    assert figures["max_output_tokens_per_s"] == 3.0


def test_the_keys_are_those_that_scripts_read():
    figures = summarize(Run([record(0, 0.1, [0.1])], 1.0), metrics=["ttft", "tpot", "itl", "e2el"], percentiles=[99])
    latencies = {
        f"{kind}_{name}_ms" for kind in ("mean", "median", "std", "p99") for name in ("ttft", "tpot", "itl", "e2el")
    }
    assert latencies < set(figures)
    assert {
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
    } < set(figures)
    assert figures["request_goodput"] is None


def test_nothing_succeeded():
    figures = summarize(Run([Record(error="x")], 0.0), metrics=["ttft"], percentiles=[99])
    assert figures["completed"] == 0 and figures["output_throughput"] == 0 and figures["p99_ttft_ms"] == 0


def test_details_are_one_entry_per_request():
    lists = details([record(0, 0.1, [0.2]), Record(error="x")])
    assert lists["ttfts"] == [0.1, 0.0] and lists["itls"] == [[0.2], []] and lists["errors"] == ["", "x"]
    assert {len(column) for column in lists.values()} == {2}


@pytest.mark.parametrize(
    ("objectives", "expected"),
    [
        ({"ttft": 100}, True),
        ({"ttft": 99}, False),
        ({"tpot": 200, "e2el": 500}, True),
        ({"tpot": 199}, False),
        ({"e2el": 499}, False),
    ],
)
def test_objectives(objectives, expected):
    assert meets(record(0, 0.1, [0.1, 0.3]), objectives) is expected


def test_goodput_is_parsed():
    assert parse_goodput(["ttft:200", "tpot:50.5"]) == {"ttft": 200.0, "tpot": 50.5}


@pytest.mark.parametrize("pair", ["ttft", "ttft:", "itl:5", "ttft:-1", "ttft:x", ""])
def test_bad_goodput(pair):
    with pytest.raises(ConfigError, match="CORE-C108"):
        parse_goodput([pair])


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=30), st.floats(0, 100))
def test_figures_stay_within_their_samples(samples, percentile):
    figures = describe("x", samples, [percentile])
    low, high = min(samples) * 1e3, max(samples) * 1e3
    for key in ("mean_x_ms", "median_x_ms", f"{percentile_key(percentile)}_x_ms"):
        assert low - 1e-6 <= figures[key] <= high + 1e-6
    assert 0 <= figures["std_x_ms"] <= high - low + 1e-6


def test_quantiles():
    assert quantiles([1.0, 2.0, 3.0], [50, 99]) == {"50": 2.0, "99": pytest.approx(2.98)}
    assert [percentile_key(value) for value in (99, 99.0, 99.9)] == ["p99", "p99", "p99.9"]


def test_peaks():
    assert peak_in_windows([]) == 0 and peak_overlap([]) == 0
    assert peak_in_windows([10.0, 10.5, 11.5, 11.6, 11.7]) == 3
    # One span ends where the next begins: they do not overlap.
    assert peak_overlap([(0, 1), (1, 2)]) == 1
    assert peak_overlap([(0, 3), (1, 2), (1.5, 4)]) == 3


def test_all_at_once():
    assert Arrivals().times(3, np.random.default_rng(0)) == [0.0, 0.0, 0.0]


@settings(deadline=None)
@given(st.floats(0.1, 1e4), st.floats(0.1, 50), st.integers(1, 60), st.integers(0, 99))
def test_arrivals_ascend_and_keep_the_rate(rate, burstiness, count, seed):
    times = Arrivals(rate, burstiness).times(count, np.random.default_rng(seed))
    assert len(times) == count and times == sorted(times) and times[0] >= 0
    assert times[-1] == pytest.approx(count / rate)


def test_burstiness_is_the_spread_of_the_gaps():
    def spread(burstiness: float) -> float:
        gaps = np.diff(Arrivals(1.0, burstiness).times(20000, np.random.default_rng(1)))
        return float(gaps.std() / gaps.mean())

    assert spread(1.0) == pytest.approx(1.0, abs=0.05)
    assert spread(4.0) == pytest.approx(0.5, abs=0.05)
    assert spread(0.25) == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(("ramp", "middle"), [("linear", 5.0), ("exponential", 3.0)])
def test_ramps(ramp, middle):
    arrivals = Arrivals(ramp=ramp, start=1.0, end=9.0)
    assert [arrivals.rate_at(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([1.0, middle, 9.0])
    gaps = np.diff(arrivals.times(2000, np.random.default_rng(0)))
    assert gaps[:500].mean() > 1.5 * gaps[-500:].mean()


def test_random_prompts():
    source = RandomPrompts(input_len=10, output_len=4, prefix_len=3, range_ratio=0.5, vocab_size=1000)
    prompts = source.make(50, np.random.default_rng(0))
    assert len({tuple(prompt.token_ids[:3]) for prompt in prompts}) == 1
    assert {len(prompt.token_ids) for prompt in prompts} <= set(range(8, 19))
    assert len({len(prompt.token_ids) for prompt in prompts}) > 3
    assert {prompt.output_len for prompt in prompts} == {2, 3, 4, 5, 6}
    assert all(256 <= token < 1000 for prompt in prompts for token in prompt.token_ids)
    assert prompts == source.make(50, np.random.default_rng(0))


def test_exact_lengths_and_tiny_vocabularies():
    prompts = RandomPrompts(input_len=7, output_len=2, vocab_size=10).make(3, np.random.default_rng(0))
    assert [(len(prompt.token_ids), prompt.output_len) for prompt in prompts] == [(7, 2)] * 3
    assert all(token < 10 for prompt in prompts for token in prompt.token_ids)


def test_text_prompts():
    assert len(as_text([300, 301, 30000]).split()) == 3
    assert as_text([300]) == as_text([300]) != as_text([301])


def test_queue_times_are_figures_of_their_own():
    records = [record(0.0, 0.1, [], queue_time=0.0), record(0.0, 0.1, [], queue_time=0.4, lag=0.003)]
    names = ["e2el", "client_queue_time", "e2el_including_client_queue"]
    figures = summarize(Run(records, 1.0), metrics=names, percentiles=[100])
    assert figures["p100_e2el_ms"] == pytest.approx(100)
    assert figures["mean_client_queue_time_ms"] == pytest.approx(200)
    assert figures["p100_e2el_including_client_queue_ms"] == pytest.approx(500)
    assert figures["client_max_lag_ms"] == pytest.approx(3)


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=200), st.floats(0.01, 100) | st.just(0.0))
def test_a_percentile_has_its_share_of_the_samples_on_each_side(samples, percentile):
    found = describe("x", samples, [percentile])[f"{percentile_key(percentile)}_x_ms"] / 1e3
    last = len(samples) - 1
    below = sum(sample <= found * (1 + 1e-9) for sample in samples) - 1
    above = sum(sample >= found * (1 - 1e-9) for sample in samples) - 1
    assert below >= math.floor(percentile / 100 * last + 1e-9)
    assert above >= math.floor((1 - percentile / 100) * last + 1e-9)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.lists(st.floats(0, 1), max_size=5), st.booleans()), min_size=1, max_size=30),
    st.floats(1, 2000),
    st.floats(1, 2000),
)
def test_goodput_counts_exactly_the_requests_within_every_objective(requests, ttft, e2el):
    records = [record(0.0, first, gaps, error="x" * failed) for first, gaps, failed in requests]
    good = sum(
        not failed and first * 1e3 <= ttft and (first + sum(gaps)) * 1e3 <= e2el for first, gaps, failed in requests
    )
    figures = summarize(Run(records, 4.0), metrics=[], percentiles=[], objectives={"ttft": ttft, "e2el": e2el})
    assert figures["request_goodput"] == pytest.approx(good / 4.0)
    assert figures["request_goodput"] <= figures["request_throughput"]


def test_arrivals_of_a_poisson_process_have_exponential_gaps():
    gaps = np.diff(Arrivals(50.0).times(20000, np.random.default_rng(7)))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    for quantile in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(gaps, quantile) == pytest.approx(-math.log(1 - quantile) / 50, rel=0.06)
    # Neighbouring gaps tell nothing about each other.
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03


def test_a_result_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    for write in (partial(save, Files()), append):
        with pytest.raises(ConfigError, match=r"CORE-C108 .*cannot be written"):
            write(tmp_path / "file" / "result.json", {})
