"""The KV budget: which rule wins, and what the user reads when too little fits."""

from dataclasses import replace

import pytest

from core.api.errors import ConfigError, EngineError
from core.api.platform import MemorySnapshot
from core.options.engine import KVOptions
from core.worker.memory import KVDemand, plan_kv, share

GIB, MIB = 2**30, 2**20
DEMAND = KVDemand(bytes_per_block=MIB, block_size=16, max_model_len=1000, max_num_seqs=64)
MEMORY = MemorySnapshot(total=16 * GIB, free=4 * GIB)


def blocks(demand=DEMAND, memory=MEMORY, **options):
    return plan_kv(KVOptions(**options), demand, memory).num_blocks


def test_the_rules_in_their_order():
    assert blocks() == 2048
    assert blocks(memory_fraction=0.25) == 1024
    assert blocks(memory_fraction=0.25, kv_memory="512MiB") == 512
    assert blocks(kv_memory="512MiB", num_blocks=100) == 100
    assert blocks(kv_memory=str(200 * MIB + 5)) == 200


def test_no_more_than_all_rows_can_use():
    budget = plan_kv(KVOptions(kv_memory="100GiB"), DEMAND, MEMORY)
    assert budget.num_blocks == 64 * 63 + 1
    assert "64 requests of 1000 tokens" in budget.reason


def test_the_budget_in_words():
    budget = plan_kv(KVOptions(), DEMAND, MEMORY)
    assert budget.num_tokens == 2047 * 16
    assert budget.describe() == "2.00 GiB, 2048 blocks, 32752 tokens (memory_fraction 0.5 of 4.00 GiB free)"


@pytest.mark.covers("PLAT-04")
def test_one_longest_request_must_fit():
    assert blocks(num_blocks=64) == 64
    for options in ({"num_blocks": 63}, {"kv_memory": "63MiB"}, {"memory_fraction": 0.01}):
        with pytest.raises(EngineError) as failure:
            blocks(**options)
        text = str(failure.value)
        assert failure.value.code == "CORE-E120"
        assert "needs 0.06 GiB (64 blocks)" in text and "4.00 GiB of 16.00 GiB" in text
        assert "--max-model-len" in text and "--kv-memory" in text


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("unread", [0, 3 * GIB + 7])
def test_both_sides_of_what_fits_beside_weights(fraction, unread):
    needed = int(DEMAND.least_blocks * MIB / fraction)
    options = KVOptions(memory_fraction=fraction)
    assert plan_kv(options, DEMAND, MemorySnapshot(16 * GIB, needed + unread), unread=unread).num_blocks == 64
    with pytest.raises(EngineError, match="CORE-E120") as failure:
        plan_kv(options, DEMAND, MemorySnapshot(16 * GIB, needed + unread - 1), unread=unread)
    assert ("the weights will take 3.00 GiB" in str(failure.value)) == bool(unread)


@pytest.mark.parametrize(("num_blocks", "longest"), [(2, 16), (33, 512), (63, 992), (64, 1000), (500, 1000)])
def test_a_context_is_lowered_to_what_fits(num_blocks, longest):
    demand = replace(DEMAND, shortens=True)
    assert plan_kv(KVOptions(num_blocks=num_blocks), demand, MEMORY).max_model_len == longest


def test_a_context_of_nothing_is_refused():
    with pytest.raises(EngineError, match=r"CORE-E120.*one token needs .* \(2 blocks\)") as failure:
        plan_kv(KVOptions(kv_memory="1MiB"), replace(DEMAND, shortens=True), MEMORY)
    assert "--max-model-len" not in str(failure.value)


@pytest.mark.parametrize("text", ["lots", "", "-1GiB", "12 parsecs", "GiB", "1e9"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="CORE-C120") as failure:
        blocks(kv_memory=text)
    assert repr(text) in str(failure.value)


@pytest.mark.covers("PLAT-04")
@pytest.mark.parametrize(("fraction", "whole"), [(0.9, 15461882266), (0.5, 8 * GIB), (0.3, 0)])
def test_a_fraction_counts_against_all_memory_where_the_peak_of_a_step_is_known(fraction, whole):
    """`ceil(total * fraction)`, of which weights and the widest step have taken theirs."""
    memory = MemorySnapshot(total=16 * GIB, free=9 * GIB, peak=6 * GIB)
    size, reason = share(fraction, memory)
    assert type(size) is int and size == max(0, whole - 6 * GIB)
    assert reason.startswith(f"memory_fraction {fraction:g} of 16.00 GiB is ")
    assert reason.endswith("GiB, of which weights and a step take 6.00 GiB")


@pytest.mark.covers("PLAT-04")
def test_too_little_is_left_beside_weights_and_a_step():
    memory = MemorySnapshot(total=16 * GIB, free=9 * GIB, peak=15 * GIB)
    with pytest.raises(EngineError) as refused:
        plan_kv(KVOptions(memory_fraction=0.9), DEMAND, memory)
    text = str(refused.value)
    assert "memory_fraction 0.9 of 16.00 GiB is 14.40 GiB, of which weights and a step take 15.00 GiB" in text
    assert "9.00 GiB of 16.00 GiB memory is free" in text and "--memory-fraction" in text
