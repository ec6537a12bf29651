"""Contexts that rotary scaling gives: their length, and logits beyond the original one, beside transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from core_plugin_llama.config import shape
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from core import ops
from core.api import CheckpointError, RopeConfig, rope_config
from core.layers.guard import LayerContext
from core.layers.rope import RotaryEmbedding
from core_testing.tinymodels import VOCAB_SIZE
from tests.engine.layers.test_families import CLOSE, TOKENS, reference_logits

HEAD = 16
ORIGINAL = 16
SHORT = [1.0 + 0.05 * index for index in range(HEAD // 2)]
LONG = [1.0 + 0.75 * index for index in range(HEAD // 2)]
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}
INSIDE = {"original_max_position_embeddings": ORIGINAL}

SCALED: dict[str, tuple[dict[str, Any], int, int]] = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, ORIGINAL, 64),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.5}, ORIGINAL, 40),
    "yarn-original": ({"rope_type": "yarn", "factor": 4.0, **INSIDE}, 20, 64),
    "yarn-scaled": ({"rope_type": "yarn", "factor": 4.0, **INSIDE}, 64, 64),
    "yarn-bare": ({"rope_type": "yarn", "factor": 4.0}, ORIGINAL, 64),
    "llama3": ({**LLAMA3, **INSIDE}, 64, 64),
    "longrope": ({**LONGROPE, **INSIDE}, 64, 64),
    "longrope-factor": ({**LONGROPE, "factor": 4.0, **INSIDE}, 64, 64),
}
"""Name -> rotary parameters, `max_position_embeddings`, the context that they give."""


@pytest.fixture(params=SCALED)
def scaled(request):
    parameters, positions, context = SCALED[request.param]
    changes = {"rope_parameters": {"rope_theta": 10000.0, **parameters}, "max_position_embeddings": positions}
    return changes, context


def config(**changes) -> dict[str, Any]:
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
    return {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, **sizes, **changes}


@pytest.mark.covers("MODEL-04")
def test_the_context_is_what_the_scaling_makes_of_it(scaled):
    changes, context = scaled
    assert shape(config(**changes)).max_positions == context
    older = {key: value for key, value in changes["rope_parameters"].items() if key != "rope_theta"}
    assert shape(config(**{**changes, "rope_parameters": None, "rope_scaling": older})).max_positions == context


@pytest.mark.covers("MODEL-04")
def test_logits_beyond_the_original_context_equal_transformers(scaled, checkpoint, load, runner):
    changes, context = scaled
    expected = reference_logits("llama", **changes)
    assert len(TOKENS) == 40 > 2 * ORIGINAL
    assert not torch.allclose(expected[ORIGINAL:], reference_logits("llama")[ORIGINAL:], **CLOSE)
    loaded = load(checkpoint("llama", **changes), max_model_len=min(context, 64))
    torch.testing.assert_close(runner(loaded).run(TOKENS), expected, **CLOSE)


@pytest.mark.covers("MODEL-04")
def test_a_token_is_rotated_alike_however_the_prompt_is_cut(scaled, checkpoint, load, runner):
    changes, context = scaled
    loaded = load(checkpoint("llama", **changes), max_model_len=context)
    whole, pieces = runner(loaded).run(TOKENS), runner(loaded)
    steps = [TOKENS[:9], TOKENS[9:29], *([token] for token in TOKENS[29:])]
    torch.testing.assert_close(torch.cat([pieces.run(step) for step in steps]), whole, **CLOSE)


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("rule", ["dynamic", "longrope"])
def test_a_context_no_longer_than_the_original_is_computed_as_the_short_prompts_of_transformers(
    rule, checkpoint, load, runner
):
    parameters, positions, _ = SCALED[rule]
    changes = {"rope_parameters": {"rope_theta": 10000.0, **parameters}, "max_position_embeddings": positions}
    loaded = load(checkpoint("llama", **changes), max_model_len=ORIGINAL)
    expected = reference_logits("llama", TOKENS[:ORIGINAL], **changes)
    torch.testing.assert_close(runner(loaded).run(TOKENS[:ORIGINAL]), expected, **CLOSE)


@pytest.mark.parametrize("context", [ORIGINAL, 24, 64])
def test_frequencies_equal_those_that_transformers_has_for_a_sequence_of_that_length(scaled, context):
    changes, _ = scaled
    reference = LlamaConfig(hidden_size=64, num_attention_heads=4, **changes)
    rule = changes["rope_parameters"]["rope_type"]
    expected, factor = ROPE_INIT_FUNCTIONS[rule](reference, torch.device("cpu"), seq_len=context)
    frequencies, found = ops.inverse_frequencies(rope_config(changes, HEAD), context)
    torch.testing.assert_close(frequencies, expected)
    assert found == pytest.approx(factor)
    table = ops.rotary_table(rope_config(changes, HEAD), context)
    torch.testing.assert_close(table[context - 1, : HEAD // 2], ((context - 1) * expected).cos() * factor)


@pytest.mark.parametrize("name", ["longrope", "su"])
def test_the_original_context_may_stand_beside_the_scaling(name):
    """As in Phi-3's configurations."""
    scaling = {"type": name, "short_factor": SHORT, "long_factor": LONG}
    outside = {"rope_scaling": scaling, "max_position_embeddings": 64, **INSIDE}
    rope = rope_config(outside, HEAD)
    assert (rope.rule, rope.original_positions, rope.context, rope.factor) == ("longrope", ORIGINAL, 64, 4.0)
    found = shape(config(**outside))
    assert (found.max_positions, found.default_positions, found.context_bound) == (64, ORIGINAL, True)


def test_only_longrope_starts_with_less_than_its_context():
    for name, (parameters, positions, context) in SCALED.items():
        found = shape(config(rope_scaling=parameters, max_position_embeddings=positions))
        assert found.default_positions == (ORIGINAL if name.startswith("longrope") else context), name
        assert found.context_bound == name.startswith(("longrope", "dynamic")), name


def test_a_part_of_each_head_may_rotate():
    assert rope_config({"rope_parameters": {"partial_rotary_factor": 0.5}}, HEAD).rotary_dim == HEAD // 2
    assert rope_config({"partial_rotary_factor": 0.25}, HEAD).rotary_dim == HEAD // 4


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "foo"}, "'foo' is not supported; supported: .*, llama3, longrope, proportional, yarn"),
        ({"rope_type": "dynamic"}, "'dynamic' needs a number 'factor'"),
        ({"rope_type": "yarn"}, "'yarn' needs a number 'factor'"),
        ({"rope_type": "yarn", "factor": "4"}, "'yarn' needs a number 'factor'; the model says '4'"),
        ({"rope_type": "linear", "factor": 0}, "needs a positive 'factor', not 0"),
        ({"rope_type": "linear", "factor": float("inf")}, "needs a number 'factor'; the model says inf"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": "a"}, "needs a number 'beta_fast'"),
        ({"rope_type": "yarn", "factor": 2.0, "mrope_section": [1, 2]}, "parameters that are not supported: mrope_sec"),
        ({"factor": 2.0}, "has factor, but no 'rope_type'"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "'high_freq_factor' greater than"),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": -1}, "needs a positive 'original"),
        ({"rope_type": "yarn", "original_max_position_embeddings": 0}, "needs a positive 'original"),
        ({**LONGROPE, "factor": 4.0, "long_factor": [1.0]}, "list 'long_factor' of 8 positive numbers.*a list of 1"),
        ({"rope_type": "longrope", "factor": 4.0, "long_factor": LONG}, "needs a list 'short_factor'.*None"),
        ({"rope_type": "linear", "factor": [[2]]}, r"'factor': \[\[2\]\], which is no parameter"),
    ],
)
def test_what_nobody_computes_is_refused_when_the_configuration_is_read(scaling, words):
    with pytest.raises(CheckpointError, match=f"CORE-M125 .*{words}"):
        shape(config(rope_scaling=scaling))


def test_a_layer_builder_refuses_it_too():
    with pytest.raises(CheckpointError, match="CORE-M125"):
        ops.rotary_table(RopeConfig(head_dim=8, rotary_dim=8, scaling={"rope_type": "foo"}), 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_theta": -1}, "'rope_theta' is -1, not a number from 1 to 1e[+]12"),
        ({"partial_rotary_factor": "half"}, "'partial_rotary_factor' is 'half', not a number"),
        ({"partial_rotary_factor": 0.2}, "3 of a head's 16 dimensions cannot rotate in pairs"),
        ({"partial_rotary_factor": 2.0}, "'partial_rotary_factor' is 2.0, not a number from 0 to 1"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "by kind of layer"),
    ],
)
def test_sizes_that_are_none_are_refused(changes, words):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{words}"):
        rope_config(changes, HEAD)


def test_the_table_has_rows_for_the_context_that_fits_and_frequencies_of_the_one_asked_for():
    config = RopeConfig(head_dim=8, rotary_dim=8, scaling={"rope_type": "dynamic", "factor": 2.0}, max_positions=64)
    rope = RotaryEmbedding(config, 2**24, LayerContext(torch.device("cpu"), torch.float32))  # 1 GiB, if it were made
    rope.prepare(4)
    q, k = torch.randn(4, 2, 8), torch.randn(4, 1, 8)
    table = ops.rotary_table(config, 2**24, 4)
    assert table.shape == (4, 16)
    assert torch.equal(rope(torch.arange(4), q, k)[0], ops.rotary(torch.arange(4), q, k, table)[0])
    assert not torch.equal(table, ops.rotary_table(config, 4))
