"""What a builder hands out, in tiny decoders: each piece is a native call of a step, with the numbers torch has."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_plugin_cpu.native import library
from core_plugin_cpu.platform import CPUPlatform
from core_plugin_decoder import HeadNorm, Norm
from core_plugin_granite import family

from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.families import TinyFamily

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

DIM, HEADS, TOP = 32, 4, 5
SIZES = {"head_dim": DIM, "num_hidden_layers": 1, "hidden_size": 48, "intermediate_size": 40}
ROW = TinyFamily("vocabulary", "GraniteForCausalLM", {"model_type": "granite", **SIZES})
PROMPT = np.random.default_rng(3).integers(3, 300, 23)


def attention(**changes):
    return lambda layer: replace(layer, attention=replace(layer.attention, **changes))


def rotated(**changes):
    return lambda layer: attention(rope=replace_rope(layer.attention.rope, changes))(layer)


def replace_rope(rope, changes):
    return rope.model_copy(update=changes) if hasattr(rope, "model_copy") else replace(rope, **changes)


def head_norms(over, **norm):
    q, k = (HeadNorm(norm=Norm(name=name, **norm), over=over) for name in ("q_norm", "k_norm"))
    return attention(q_norm=q, k_norm=k)


def mlp(**changes):
    return lambda layer: replace(layer, mlp=replace(layer.mlp, **changes))


def norms(**changes):
    return lambda layer: replace(
        layer,
        before_attention=replace(layer.before_attention, **changes),
        before_mlp=replace(layer.before_mlp, **changes),
    )


PIECES = {
    "interleaved rotary": rotated(interleaved=True),
    "interleaved rotary of some": rotated(interleaved=True, rotary_dim=12),
    "partial rotary": rotated(rotary_dim=12),
    "rms norm of heads": head_norms("head"),
    "layer norm of heads": head_norms("head", kind="layer", bias=True),
    "rms norm of heads without weight": head_norms("head", weight=False),
    "layer norm of heads without weight": head_norms("head", kind="layer", weight=False),
    "rms norm of heads with own weights": head_norms("own"),
    "layer norm of heads with own weights": head_norms("own", kind="layer"),
    "rms norm of all heads": head_norms("all"),
    "layer norm of all heads": head_norms("all", kind="layer"),
    "norms behind rotary": lambda layer: attention(rotates_first=True)(head_norms("head")(layer)),
    "norm of values": attention(v_norm=HeadNorm(norm=Norm(name="v_norm", weight=False))),
    "clip": attention(clip=0.5),
    "growing queries": attention(grows=(0.1, 8)),
    "layer norms": norms(kind="layer"),
    "layer norms with bias": norms(kind="layer", bias=True),
    "layer norms without weight": norms(kind="layer", weight=False),
    "rms norms with offset": norms(offset=1.0),
    "factor of what is added": lambda layer: replace(layer, scale=0.3),
    "parallel": lambda layer: replace(layer, parallel=True, before_mlp=None),
    **{
        f"plain {name}": mlp(gate=None, activation=name)
        for name in ("relu", "relu2", "silu", "sigmoid", "tanh", "gelu", "gelu_new", "quick_gelu")
    },
    **{
        f"gated {name}": mlp(activation=name)
        for name in ("silu", "gelu", "relu", "relu2", "sigmoid", "tanh", "quick_gelu")
    },
}
"""Name -> what becomes of a layer."""

WHOLE = {
    "sinusoidal positions": {"sinusoid": 0},
    "logits capped": {"softcap": 5.0, "logit_scale": 0.5},
    "embedding scaled": {"embed_scale": 3.0},
}
"""Name -> what becomes of a decoder."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return ROW.write(tmp_path_factory.mktemp("vocabulary") / "model")


def scores(checkpoint):
    """Return what the start table says of the program, and log-probabilities of a prompt and the tokens behind it."""
    options = Options(
        model=ModelOptions(model=str(checkpoint), dtype="float32", max_model_len=64),
        kv=KVOptions(num_blocks=20, block_size=16),
        runtime=RuntimeOptions(threads=1),
        select=SelectOptions(attention_backend="cpu_native", load_format="dummy"),
    )
    found = []
    with closing(open_sync(resolve(options).config)) as engine:
        params = SamplingParams(max_tokens=4, temperature=0.0, prompt_logprobs=TOP, logprobs=TOP)
        engine.send(Add(handle=0, prompt=PROMPT.astype("<i4").tobytes(), params=params, stop_ids=[]))
        while steps := engine.step():
            for outputs in steps:
                found += [position.values for positions in outputs.prompt_logprobs.values() for position in positions]
                found += [[float(token)] for token in np.frombuffer(outputs.tokens, "<i4")]
        return engine.ready.facts.get("program"), torch.tensor([value for values in found for value in values])


@pytest.mark.parametrize("piece", [*PIECES, *WHOLE])
def test_a_piece_is_native_and_gives_what_torch_gives(piece, checkpoint, monkeypatch):
    plain = family.Granite.describe

    def described(config):
        decoder = plain(config)
        change = PIECES.get(piece, lambda layer: layer)
        return replace(decoder, layers=tuple(map(change, decoder.layers)), **WHOLE.get(piece, {}))

    monkeypatch.setattr(family.Granite, "describe", staticmethod(described))
    monkeypatch.setattr("core.layers.params.INVENTED", 0.3)
    monkeypatch.setattr("core.layers.weights.INVENTED", 0.3)
    told, found = scores(checkpoint)
    assert re.fullmatch(r"\d+ calls", told), told
    init = CPUPlatform.__init__

    def without_programs(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.graphs = self._programs = None

    monkeypatch.setattr(CPUPlatform, "__init__", without_programs)
    told, due = scores(checkpoint)
    assert told is None and len(due) > len(PROMPT) * TOP
    torch.testing.assert_close(found, due, atol=1e-4, rtol=1e-4)
