"""A family that core has never heard of, from a plugin outside: its tokens are those of plain torch, on ranks too.

Attention and MLP side by side, ALiBi besides a rotary embedding of half a head, heads of 24, one fused tensor for
query, key and value by turns, biases everywhere.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from core import LLM, SamplingParams
from core.api import CoreError
from core_testing.conformance.tools.decoder import Decoder, Track
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.ranks import run_ranks
from core_testing.tinymodels import VOCAB_SIZE, tiny_tokenizer

HEADS, KV_HEADS, DIM, HIDDEN, INNER, LAYERS, ROTATED, EPS = 6, 2, 24, 64, 96, 3, 12, 1e-5
CONFIG = {
    "architectures": ["StrangeForCausalLM"],
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "partial_rotary_factor": ROTATED / DIM,
    "max_position_embeddings": 256,
    "layer_norm_eps": EPS,
    "eos_token_id": 2,
}
PROMPTS = [[3 + (i * 29 + seed * 7) % 90 for i in range(length)] for seed, length in enumerate((41, 23, 5))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=1)


@pytest.fixture(scope="module")
def weights():
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "embed.weight": (VOCAB_SIZE, HIDDEN),
        "lm_head.weight": (VOCAB_SIZE, HIDDEN),
        "lm_head.bias": (VOCAB_SIZE,),
    }
    shapes |= {"final_norm.weight": (HIDDEN,), "final_norm.bias": (HIDDEN,)}
    for index in range(LAYERS):
        sizes = {"query_key_value": ((HEADS + 2 * KV_HEADS) * DIM, HIDDEN), "dense": (HIDDEN, HEADS * DIM)}
        sizes |= {"mlp.fc_in": (INNER, HIDDEN), "mlp.fc_out": (HIDDEN, INNER), "norm": (HIDDEN,)}
        for name, size in sizes.items():
            shapes[f"h.{index}.{name}.weight"] = size
            shapes[f"h.{index}.{name}.bias"] = size[:1]
    made = {f"decoder.{name}": torch.randn(size, generator=generator) * 0.3 for name, size in shapes.items()}
    # Norms around 1, so that the greatest logit changes from token to token.
    return {name: value + 1.0 if name.endswith("norm.weight") else value for name, value in made.items()}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, weights):
    directory = tiny_tokenizer(tmp_path_factory.mktemp("strange"))
    (directory / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights, directory / "model.safetensors")
    return str(directory)


def rotated(x):
    """Rotate the first dimensions of each head by position, `(tokens, heads, head_dim)`."""
    frequencies = 10000.0 ** (-torch.arange(0, ROTATED, 2) / ROTATED)
    angles = (torch.arange(len(x))[:, None] * frequencies)[:, None]
    first, second, rest = x.split([ROTATED // 2, ROTATED // 2, DIM - ROTATED], dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def reference(weights, tokens):
    """Return the logits of a whole sequence, in plain torch."""

    def linear(x, name):
        return functional.linear(x, weights[f"decoder.{name}.weight"], weights[f"decoder.{name}.bias"])

    def norm(x, name):
        return functional.layer_norm(
            x, (HIDDEN,), weights[f"decoder.{name}.weight"], weights[f"decoder.{name}.bias"], EPS
        )

    hidden, length = weights["decoder.embed.weight"][torch.tensor(tokens)], len(tokens)
    # As Bloom has it: a slope for each head times the key's position, whatever the query's.
    slopes = torch.tensor([2.0 ** (-8.0 * (head + 1) / HEADS) for head in range(HEADS)])
    alibi = slopes[:, None, None] * torch.arange(length)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    for index in range(LAYERS):
        normed = norm(hidden, f"h.{index}.norm")
        shared = HEADS // KV_HEADS
        fused = linear(normed, f"h.{index}.query_key_value").view(length, KV_HEADS, shared + 2, DIM)
        q, k, v = fused[:, :, :shared].flatten(1, 2), fused[:, :, shared], fused[:, :, shared + 1]
        q, k = rotated(q), rotated(k).repeat_interleave(shared, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5 + alibi
        mixed = torch.einsum(
            "hqk,khd->qhd", scores.masked_fill(future, -torch.inf).softmax(-1), v.repeat_interleave(shared, dim=1)
        )
        mlp = linear(functional.gelu(linear(normed, f"h.{index}.mlp.fc_in")), f"h.{index}.mlp.fc_out")
        hidden = hidden + linear(mixed.flatten(1), f"h.{index}.dense") + mlp
    return linear(norm(hidden, "final_norm"), "lm_head")


@pytest.fixture(scope="module")
def due(weights):
    """For each prompt the greedy tokens, and how likely each of them was."""
    answers = []
    for prompt in PROMPTS:
        tokens, chances = list(prompt), []
        for _ in range(GREEDY.max_tokens):
            logprobs = reference(weights, tokens)[-1].log_softmax(-1)
            tokens.append(int(logprobs.argmax()))
            chances.append(float(logprobs.max()))
        answers.append((tokens[len(prompt) :], chances))
    assert len({token for tokens, _ in answers for token in tokens}) > 8
    return answers


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize(
    "options",
    [{}, {"max_num_batched_tokens": 7, "max_num_seqs": 2}, {"overlap_depth": 0, "block_size": 4}],
    ids=["whole", "chunks", "blocks"],
)
def test_its_tokens_are_those_of_plain_torch(plugins, checkpoint, due, options):
    plugins("model")
    with LLM(checkpoint, dtype="float32", num_blocks=100, **options) as llm:
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        outputs = [llm.generate(prompts, GREEDY) for _ in range(2)]
        backend = llm.config.plan.one("core.attention_backends").name
    assert backend == "torch_sdpa", "the native one has no heads of 24"
    assert outputs[1][0].num_cached_tokens > 0, "the prefix cache serves the second time"
    for found in outputs:
        for output, (tokens, chances) in zip(found, due, strict=True):
            (one,) = output.outputs
            assert list(one.token_ids) == tokens
            logprobs = [step[token].logprob for step, token in zip(one.logprobs, tokens, strict=True)]
            assert logprobs == pytest.approx(chances, abs=1e-3)


@pytest.mark.covers("ATTN-01")
def test_a_backend_without_the_feature_is_refused_by_name(plugins, checkpoint):
    plugins("model", "attention")
    with pytest.raises(CoreError, match=r"'traced'.*alibi"):
        LLM(checkpoint, dtype="float32", num_blocks=100, attention_backend="traced")


def test_two_ranks_give_the_logits_of_one(plugins, weights):
    plugins("model")
    from seam_model.model import Strange

    subject = SimpleNamespace(impl=lambda: Strange, device="cpu")
    case = SimpleNamespace(config=CONFIG, tensors=lambda: [PlainTensor(*pair) for pair in weights.items()])

    def rank(ranks, all_reduce):
        decoder, track = Decoder(subject, case, ranks=ranks, all_reduce=all_reduce), Track()
        return torch.cat([decoder.run([(track, PROMPTS[0][start : start + 7])])[0] for start in range(0, 41, 7)])

    found = torch.cat(run_ranks(2, rank), dim=-1)
    torch.testing.assert_close(found, reference(weights, PROMPTS[0]), rtol=0, atol=2e-3)
