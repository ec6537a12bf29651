"""The option `cpu_lookup.head`: an output projection in 8 bits, through whole engines and by itself."""

from __future__ import annotations

import logging
from statistics import fmean

import pytest
import torch
from core_plugin_cpu.native import library
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.options import LookupOptions
from core_plugin_unquantized.plain import Plain

from core import LLM, SamplingParams
from core.api import LayerSite, QuantContext, WeightForm
from core_testing.conformance.tools.parts import plain_part
from core_testing.layers import PlainTensor, fill, make_layer
from core_testing.tinymodels import tiny_llama

from .weights import PRODUCTS, error, make, packed

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

DEFAULTS = {"none": False, "gguf": False, "awq": True, "gptq": True, "compressed-tensors": False}
HEAD, EMBEDDING = (
    LayerSite(kind, name, 64, (("", 50),)) for kind, name in (("lm_head", "head"), ("embedding", "embed"))
)


def kind_of(site, form=WeightForm(), name="cpu_lookup", **settings):  # noqa: B008
    return make(name, site, [form], **settings)._packings[0].kind


@pytest.mark.covers("QUANT-05")
@pytest.mark.parametrize("method", DEFAULTS)
def test_heads_of_four_bit_checkpoints_are_rounded_by_default(method):
    assert LookupOptions().head == "auto"
    for site in (HEAD, EMBEDDING):
        assert kind_of(site, method=method, head="checkpoint") == Format.BF16
        assert kind_of(site, method=method, head="int8") == Format.Q8_0
        assert kind_of(site, method=method) == (Format.Q8_0 if DEFAULTS[method] else Format.BF16)


def test_linears_of_plain_weights_and_heads_of_other_forms_stay(caplog):
    assert kind_of(LayerSite("linear", "left.out", 64, (("", 48),)), name="cpu_linear") == Format.BF16
    assert kind_of(HEAD, name="dense", dtype=torch.float32) == Format.F32
    assert kind_of(HEAD, WeightForm(codes="gguf:Q4_0"), head="int8") == Format.Q4_0
    odd = LayerSite("lm_head", "head", 72, (("", 50),))
    with caplog.at_level(logging.INFO):
        assert kind_of(odd, method="awq") == Format.BF16
        assert kind_of(HEAD, method="awq") == Format.Q8_0
    assert "72 inputs are no whole blocks of 32" in caplog.messages[0]
    assert "cpu_lookup.head=checkpoint keeps" in caplog.messages[1]


@pytest.mark.parametrize("rows", [50, 2048 + 17])
def test_a_rounded_head_is_off_by_its_blocks_rounding_and_takes_updates(rows):
    product = make("cpu_lookup", LayerSite("lm_head", "head", 64, (("", rows),)), [WeightForm()], head="int8")
    x = torch.randn(3, 64).bfloat16()
    for _ in range(2):
        weight = torch.randn(rows, 64).half()
        assert error(product.apply(x, packed(product, [plain_part(weight)])), x.float() @ weight.float().T) < 0.012


def test_a_head_is_rounded_from_the_numbers_of_the_checkpoint_not_from_the_compute_dtypes():
    weight = torch.randn(50, 64)
    reader = Plain(QuantContext(torch.device("cpu"), torch.bfloat16, {}))
    layer = make_layer(
        reader, HEAD, product=lambda place: PRODUCTS["cpu_lookup"](place, {"head": "int8"}), dtype=torch.bfloat16
    )
    fill(layer.group, [PlainTensor("head.weight", weight)])
    due = packed(make("cpu_lookup", HEAD, [WeightForm()], head="int8"), [plain_part(weight)])
    assert torch.equal(layer.params["weight"], due["weight"])


def ask(llm, params):
    output = llm.generate([{"prompt_token_ids": list(range(3, 20))}], params)[0]
    return output, output.outputs[0]


def scores(llm):
    """Log-probabilities of the likeliest tokens behind each token of the prompt, and of the first answer token."""
    output, answer = ask(llm, SamplingParams(temperature=0.0, max_tokens=1, logprobs=100, prompt_logprobs=100))
    entries = [entry for entry in (*output.prompt_logprobs, *answer.logprobs) if entry]
    return [{token: one.logprob for token, one in entry.items()} for entry in entries]


@pytest.mark.covers("QUANT-05", "WT-01")
@pytest.mark.parametrize("tied", [True, False])
def test_engines_score_draw_and_take_new_weights_with_a_rounded_head(tmp_path, tied):
    shape = {"hidden_size": 64, "tie_word_embeddings": tied, "vocab_size": 391}
    old, new = (tiny_llama(tmp_path / str(seed), seed=seed, **shape) for seed in (1, 2))
    rounded = {"cpu_lookup": {"head": "int8"}}
    common = {"dtype": "bfloat16", "num_blocks": 32, "max_model_len": 128}
    drawn = SamplingParams(temperature=0.7, top_k=5, seed=3, max_tokens=8, logit_bias={7: 4.0}, ignore_eos=True)
    with LLM(str(old), **common) as llm:
        exact = scores(llm)
    with LLM(str(new), plugin_options=rounded, **common) as llm:
        wanted = ask(llm, drawn)[1].token_ids
    with LLM(str(old), plugin_options=rounded, weight_transfer="disk", **common) as llm:
        (lookup,) = (one for one in llm.config.plan.of("core.kernels") if one.name == "cpu_lookup")
        assert lookup.options["head"] == "int8"
        found = scores(llm)
        assert ask(llm, drawn)[1].token_ids != wanted
        llm.call("update_weights", {"path": str(new)})
        assert ask(llm, drawn)[1].token_ids == wanted
    differences = [abs(one[token] - other[token]) for one, other in zip(found, exact) for token in one.keys() & other]
    assert len(differences) > 17 * 60
    assert 0 < fmean(differences) < 0.08  # of logits up to 9
