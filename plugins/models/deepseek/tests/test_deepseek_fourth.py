"""DeepSeek V4: what configurations ask for, and states and entries however a sequence is cut."""

from __future__ import annotations

from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_deepseek.fourth.compressor import pool
from core_plugin_deepseek.fourth.model import DeepSeekV4
from core_plugin_deepseek.fourth.reading import HEAVY, SPARSE, WINDOW, read, shape
from core_plugin_deepseek.fourth.streams import doubly_stochastic
from core_plugin_deepseek.fourth.window import joined, window_attention

from core.api import CheckpointError, ConfigError, CoreError, Ranks, State, StateRows
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.attention import block_size_of
from core.selection.resolver import resolve
from core_testing.conformance.tools.decoder import Decoder, Track
from core_testing.conformance.tools.tiny_cases import BLOCK_SIZE, TinyCase
from core_testing.families import logits_of

MAKERS = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "qk_rope_head_dim": 64,
    "compress_ratios": [0, 128, 4, 128, 0],
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "max_position_embeddings": 1048576,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 65536,
        "beta_fast": 32,
        "beta_slow": 1,
    },
}
"""As the makers write it: ratios of all layers, and of the one that predicts further tokens."""

SUBJECT = SimpleNamespace(impl=lambda: DeepSeekV4, device="cpu")
PROMPT = [(7 * index * index + 3 * index + 11) % 300 for index in range(67)]


def row(name="deepseek_v4"):
    spec = spec_from_file_location("rows_of_deepseek", Path(__file__).with_name("rows.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(one for one in module.ROWS if one.name == name)


@pytest.fixture(scope="module")
def case():
    return TinyCase("deepseek_v4", "DeepseekV4ForCausalLM", row().model())


def test_the_makers_keys_and_transformers_say_the_same():
    given = read(MAKERS)
    main, compressed = given.layers[0].rope, given.layers[1].rope
    assert [layer.compression and layer.compression.ratio for layer in given.layers] == [None, 128, 4, 128]
    assert [layer.table for layer in given.layers] == [True, True, True, False]
    assert (main.head_dim, main.rotary_dim, main.theta, main.rule) == (64, 64, 10000.0, "default")
    assert (compressed.theta, compressed.factor, compressed.context) == (160000.0, 16.0, 1048576)
    assert compressed.number("attention_factor") == 1.0
    sparse = given.layers[2].compression
    assert (sparse.picks, sparse.index_heads, sparse.index_dim, sparse.overlaps) == (512, 64, 128, True)

    from transformers import DeepseekV4Config

    made = DeepseekV4Config(**{**MAKERS, "rope_scaling": dict(MAKERS["rope_scaling"])})
    kinds = {None: WINDOW, 4: SPARSE, 128: HEAVY}
    assert made.layer_types == [kinds[one.compression and one.compression.ratio] for one in given.layers]
    stored = {**made.to_dict(), "architectures": MAKERS["architectures"]}
    assert read(stored).layers == given.layers
    assert read({**MAKERS, "compress_ratios": None}).layers[:3] == (given.layers[1], given.layers[1], given.layers[1])


def test_the_shape_names_the_feature_the_blocks_and_that_there_are_states():
    found = shape(MAKERS)
    assert (found.features, found.block_multiple, found.recurrent) == ({"compressed"}, 128, True)
    assert (found.num_kv_heads, found.head_dim, len(found.ropes)) == (1, 512, 2)
    alone = shape({**MAKERS, "compress_ratios": [0, 0, 0, 0]})
    assert (alone.features, alone.block_multiple, len(alone.ropes)) == (frozenset(), 1, 1)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"compress_ratios": [0, 8, 4, 128]}, "'layer_types' .*must name 4 layers"),
        ({"mlp_layer_types": ["moe"] * 3}, "'mlp_layer_types' must name 4 layers"),
        ({"scoring_func": "sigmoid"}, "'scoring_func' is 'sigmoid'"),
        ({"n_shared_experts": 2}, "'n_shared_experts' is 2"),
        ({"o_groups": 3}, "8 heads are not 3 groups"),
        ({"tie_word_embeddings": True}, "'tie_word_embeddings'"),
    ],
)
def test_what_nobody_computes_is_refused(config, told):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{told}"):
        read({**MAKERS, **config})


@pytest.mark.covers("MODEL-04", "ATTN-10")
def test_logits_are_those_of_the_reference_in_pieces_and_behind_shared_blocks(case):
    """By the plainest attention to entries, on states that begin as NaN."""
    due, decoder = logits_of(case.reference, PROMPT), Decoder(SUBJECT, case)
    for pieces in ((67,), (20, 7, 1, 38, 1)):
        track, begin, out = Track(), 0, []
        for count in pieces:
            out += decoder.run([(track, PROMPT[begin : begin + count])])
            begin += count
        torch.testing.assert_close(torch.cat(out), due, atol=1e-3, rtol=1e-3)
    first = Track()
    decoder.run([(first, PROMPT[: 7 * BLOCK_SIZE])])
    (rest,), _ = decoder.run([(decoder.fork(first), PROMPT[7 * BLOCK_SIZE :])]), decoder.run([(first, PROMPT[:3])])
    torch.testing.assert_close(rest, due[7 * BLOCK_SIZE :], atol=1e-3, rtol=1e-3)


def test_ranks_are_refused(case):
    with pytest.raises(CheckpointError, match="CORE-M183 DeepSeek V4 cannot be divided among ranks"):
        Decoder(SUBJECT, case, ranks=Ranks(0, 2), all_reduce=lambda x: x)


def state(lines, width, slots):
    memory = torch.full((9, lines, width), torch.nan, dtype=torch.float64)
    return lambda counts: State(
        memory,
        StateRows(
            torch.tensor(slots[: len(counts)]),
            torch.zeros(len(counts), dtype=torch.int64),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        ),
    )


STEPS = [(5, 1), (1, 1), (1, 9), (13, 1), (1, 1), (2, 3), (1, 1)]
"""Tokens of two rows: alone, together, and one beside several."""


def run(step, state, sizes, rng):
    """Run `step(values, positions, state)` along `STEPS`; return the values of each row, and what it gave."""
    length = [sum(counts[row] for counts in STEPS) for row in range(2)]
    values = [[torch.randn(count, *size, generator=rng, dtype=torch.float64) for size in sizes] for count in length]
    done, found = [0, 0], [[], []]
    for counts in STEPS:
        spans = [(done[row], done[row] + counts[row]) for row in range(2)]
        given = [torch.cat([values[row][i][slice(*spans[row])] for row in range(2)]) for i in range(len(sizes))]
        positions = torch.cat([torch.arange(*span) for span in spans])
        for row, part in enumerate(step(given, positions, state(counts)).split(list(counts))):
            found[row].append(part)
        done = [end for _, end in spans]
    return values, [torch.cat(one) for one in found]


def test_a_window_is_seen_however_a_row_is_cut():
    rng, window, scale = torch.Generator().manual_seed(3), 6, 0.4
    sinks = torch.tensor([0.5, -1.0, 2.0])

    def step(given, positions, state):
        return joined([window_attention(*given, positions, state, scale)], sinks)

    values, found = run(step, state(window, 8, [4, 2]), [(3, 8), (8,)], rng)
    for (q, keys), mine in zip(values, found, strict=True):
        for position in range(len(q)):
            seen = keys[max(0, position - window + 1) : position + 1]
            scores = torch.cat((q[position] @ seen.T * scale, sinks.double()[:, None]), 1)
            due = scores.softmax(1)[:, :-1] @ seen
            torch.testing.assert_close(mine[position], due.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("ratio", "series"), [(5, 1), (3, 2), (1, 2)])
def test_entries_are_gated_means_however_a_row_is_cut(ratio, series):
    rng, size = torch.Generator().manual_seed(3), 4
    bias = torch.randn(ratio, series * size, generator=rng)

    def step(given, positions, state):
        return pool(*given, bias, positions, state)

    values, found = run(step, state(ratio * series, 2 * series * size, [4, 2]), [(2 * series * size,)], rng)
    for (lines,), mine in zip(values, found, strict=True):
        products, gates = lines.chunk(2, 1)
        gates = gates + bias.repeat(-(-len(gates) // ratio), 1)[: len(gates)]
        for end in range(ratio, len(lines) + 1, ratio):
            own = slice(end - ratio, end)
            kept, weights = products[own, -size:], gates[own, -size:]
            if series == 2 and end > ratio:
                before = slice(end - 2 * ratio, end - ratio)
                kept, weights = (torch.cat((a[before, :size], b)) for a, b in ((products, kept), (gates, weights)))
            due = (kept * weights.softmax(0)).sum(0)
            torch.testing.assert_close(mine[end - 1], due, atol=1e-5, rtol=1e-5)


def test_rows_and_columns_sum_to_one():
    found = doubly_stochastic(torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(1)), 20, 1e-6)
    for axis in (1, 2):
        torch.testing.assert_close(found.sum(axis), torch.ones(5, 4), atol=1e-3, rtol=1e-3)


@pytest.fixture(scope="module")
def written(case, tmp_path_factory):
    return row().write(tmp_path_factory.mktemp("fourth") / "model", case.reference)


def options(directory, **parts):
    return Options(
        model=ModelOptions(model=str(directory), dtype="float32", max_model_len=64),
        runtime=RuntimeOptions(threads=1),
        **parts,
    )


@pytest.mark.covers("MODEL-04")
def test_the_start_table_counts_entries_and_states(written):
    config = options(written, kv=KVOptions(kv_memory="1MiB", block_size=8, state_interval=8))
    with closing(open_sync(resolve(config).config)) as engine:
        # Layers of ratios 2, 4 and 2, and the index keys of two of them; 4 bytes each.
        token = 4 * (24 / 2 + 24 / 4 + 24 / 2 + 2 * 20 / 2)
        blocks = int(2**20 // (8 * token))
        assert engine.ready.facts["kv cache"].startswith(f"0.00 GiB, {blocks} blocks, {(blocks - 1) * 8} tokens")
        assert "snapshots" in engine.ready.facts["states"]


@pytest.mark.covers("MODEL-04", "ATTN-10")
@pytest.mark.parametrize("backend", ["torch_sdpa", "cpu_native"])
def test_tokens_of_several_requests_are_those_of_the_reference(case, written, backend):
    """Rows of several lengths at once, one of which has no entry yet."""
    prompts = (PROMPT[:40], PROMPT[5:17], PROMPT[3:4])
    kv, select = KVOptions(block_size=16, num_blocks=30), SelectOptions(attention_backend=backend)
    params, found = SamplingParams(max_tokens=8, temperature=0.0), {index: [] for index in range(len(prompts))}
    with closing(open_sync(resolve(options(written, kv=kv, select=select)).config)) as engine:
        for handle, prompt in enumerate(prompts):
            engine.send(Add(handle=handle, prompt=np.array(prompt, "<i4").tobytes(), params=params, stop_ids=[]))
        while steps := engine.step():
            for one in steps:
                pairs = zip(np.frombuffer(one.handles, "<i8"), np.frombuffer(one.tokens, "<i4"), strict=True)
                for handle, token in pairs:
                    found[int(handle)].append(int(token))
    for handle, prompt in enumerate(prompts):
        tokens = list(prompt)
        for _ in range(8):
            tokens.append(int(logits_of(case.reference, tokens)[-1].argmax()))
        assert found[handle] == tokens[len(prompt) :]


def test_blocks_hold_whole_entries(written):
    with pytest.raises(ConfigError, match=r"CORE-C122 KV blocks of 6 tokens do not suit the model.* 4"):
        resolve(options(written, kv=KVOptions(block_size=6)))
    assert resolve(options(written)).config.block_size % 4 == 0
    assert block_size_of(None, 16, shape(MAKERS)) == block_size_of(None, 128, shape(MAKERS)) == 128
    assert block_size_of(None, 16, shape({**MAKERS, "compress_ratios": [0] * 4})) == 16


@pytest.mark.parametrize("select", [{"drafter": "ngram"}, {"kv_connector": ["cpu_offload"]}])
def test_what_states_exclude_is_refused_with_the_reason(written, select):
    with pytest.raises(CoreError, match="the model keeps recurrent states"):
        resolve(options(written, select=SelectOptions(**select)))
