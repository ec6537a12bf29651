"""The option `head`: an output projection in 8 bits, through whole engines and by itself."""

from __future__ import annotations

import logging
from statistics import fmean

import pytest
import torch
from core_plugin_cpu import manifest
from core_plugin_cpu.awq import AWQScheme
from core_plugin_cpu.compressed import CompressedScheme
from core_plugin_cpu.dense import DenseScheme
from core_plugin_cpu.gguf import GGUFScheme
from core_plugin_cpu.gptq import GPTQScheme
from core_plugin_cpu.int8 import Int8Scheme
from core_plugin_cpu.native import library
from core_plugin_cpu.native.packed import Format

from core import LLM, SamplingParams
from core.api import LayerSite, QuantContext
from core.testing.layers import PlainTensor, fill, make_layer
from core.testing.tinymodels import tiny_llama

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
COMPRESSED = {"format": "int-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": INT8}}}
SCHEMES = {
    "cpu_dense": (DenseScheme, {}, "checkpoint"),
    "cpu_gguf": (GGUFScheme, {"tensors": {"head.weight": "F16", "embed.weight": "F16"}}, "checkpoint"),
    "cpu_awq": (AWQScheme, {}, "int8"),
    "cpu_gptq": (GPTQScheme, {}, "int8"),
    "cpu_compressed_tensors": (CompressedScheme, COMPRESSED, "checkpoint"),
    "int8": (Int8Scheme, {}, "checkpoint"),
}
HEAD, EMBEDDING = (
    LayerSite(kind, name, 64, (("", 50),)) for kind, name in (("lm_head", "head"), ("embedding", "embed"))
)


def kind_of(driver, site, dtype=torch.bfloat16, **options):
    scheme, config, _ = SCHEMES[driver]
    quant = scheme(QuantContext(torch.device("cpu"), dtype, config, options)).for_site(site)
    return quant._products[0].kind


@pytest.mark.covers("QUANT-05")
@pytest.mark.parametrize("driver", SCHEMES)
def test_every_method_has_the_option_and_says_its_default(driver):
    spec = next(one for one in vars(manifest).values() if getattr(one, "name", "") == driver)
    package, _, name = spec.options.partition(":")
    model = getattr(__import__(package, fromlist=[name]), name)
    assert model().head == SCHEMES[driver][2]
    for site in (HEAD, EMBEDDING):
        assert kind_of(driver, site, head="checkpoint") == Format.BF16
        assert kind_of(driver, site, head="int8") == Format.Q8_0
        assert kind_of(driver, site) == (Format.Q8_0 if SCHEMES[driver][2] == "int8" else Format.BF16)


def test_linears_of_plain_weights_and_heads_of_other_formats_stay(caplog):
    linear = LayerSite("linear", "left.out", 64, (("", 48),))
    assert kind_of("cpu_dense", linear, head="int8") == Format.BF16
    assert kind_of("cpu_dense", HEAD, torch.float32) == Format.F32
    stored = GGUFScheme(
        QuantContext(torch.device("cpu"), torch.bfloat16, {"tensors": {"head.weight": "Q4_0"}}, {"head": "int8"})
    )
    assert stored.for_site(HEAD)._products[0].kind == Format.Q4_0
    odd = LayerSite("lm_head", "head", 72, (("", 50),))
    with caplog.at_level(logging.INFO):
        assert kind_of("cpu_awq", odd) == Format.BF16
        assert kind_of("cpu_awq", HEAD) == Format.Q8_0
    assert "72 inputs are no whole blocks of 32" in caplog.messages[0]
    assert "cpu_awq.head=checkpoint keeps" in caplog.messages[1]


@pytest.mark.parametrize("rows", [50, 2048 + 17])
def test_a_rounded_head_is_off_by_its_blocks_rounding_and_takes_updates(rows):
    site = LayerSite("lm_head", "head", 64, (("", rows),))
    _, layer = make_layer(
        DenseScheme(QuantContext(torch.device("cpu"), torch.bfloat16, {}, {"head": "int8"})), site, dtype=torch.bfloat16
    )
    x = torch.randn(3, 64).bfloat16()
    for _ in range(2):
        weight = torch.randn(rows, 64).half()
        fill(layer.group, [PlainTensor("head.weight", weight)])
        expected = x.float() @ weight.float().T
        assert ((layer(x).float() - expected).norm() / expected.norm()) < 0.012


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
    rounded = {"cpu_dense": {"head": "int8"}}
    common = {"dtype": "bfloat16", "num_blocks": 32, "max_model_len": 128}
    drawn = SamplingParams(temperature=0.7, top_k=5, seed=3, max_tokens=8, logit_bias={7: 4.0}, ignore_eos=True)
    with LLM(str(old), **common) as llm:
        exact = scores(llm)
    with LLM(str(new), plugin_options=rounded, **common) as llm:
        wanted = ask(llm, drawn)[1].token_ids
    with LLM(str(old), plugin_options=rounded, weight_transfer="disk", **common) as llm:
        assert llm.config.plan.one("core.quantization").options == {"head": "int8"}
        found = scores(llm)
        assert ask(llm, drawn)[1].token_ids != wanted
        llm.call("update_weights", {"path": str(new)})
        assert ask(llm, drawn)[1].token_ids == wanted
    differences = [abs(one[token] - other[token]) for one, other in zip(found, exact) for token in one.keys() & other]
    assert len(differences) > 17 * 60
    assert 0 < fmean(differences) < 0.08  # of logits up to 9
