import json

import torch
from safetensors.torch import save_file

from core.api import LayerSite
from core_testing.conformance import CheckpointSample

SITES = (
    LayerSite("embedding", "model.embed_tokens", 64, (("", 40),)),
    LayerSite("linear", "model.layers.0.self_attn", 64, (("q_proj", 64), ("k_proj", 32), ("v_proj", 32))),
    LayerSite("linear", "model.layers.0.mlp.up_proj", 96, (("", 64),), bias=True),
    LayerSite("lm_head", "lm_head", 64, (("", 40),)),
)


def stored(weight):
    """The tensors of a weight `(outputs, inputs)`, and what they mean."""
    group = torch.arange(weight.shape[1]) // 48
    runs = [weight[:, group == index] for index in range(int(group.max()) + 1)]
    low, high = (torch.stack([pick(run) for run in runs], 1) for pick in (lambda x: x.amin(1), lambda x: x.amax(1)))
    scale = ((high.clamp(min=0) - low.clamp(max=0)) / 15).half()
    zero = (-low.clamp(max=0) / scale.float()).round().clamp(0, 15)
    each = scale.float()[:, group], zero[:, group]
    codes = (weight / each[0] + each[1]).round().clamp(0, 15).to(torch.uint8)
    tensors = {"pairs": codes[:, ::2] | codes[:, 1::2] << 4, "scale": scale, "zero": zero.to(torch.uint8)}
    return tensors, (codes.float() - each[1]) * each[0]


def make():
    rng, files, values = torch.Generator().manual_seed(2), {}, {}
    for site in SITES:
        for part, rows in site.parts:
            module, weight = site.module(part), torch.randn(rows, site.in_features, generator=rng)
            tensors, meant = stored(weight) if site.kind == "linear" else ({"weight": weight}, weight)
            files |= {f"{module}.{suffix}": one for suffix, one in tensors.items()}
            values[f"{module}.weight"] = meant
            if site.bias:
                files[f"{module}.bias"] = values[f"{module}.bias"] = torch.randn(rows, generator=rng)
    return files, values


def write(folder):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 40}
    config["quantization_config"] = {"quant_method": "pairs48", "group": 48}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(make()[0], folder / "model.safetensors")
    return folder


def samples():
    yield CheckpointSample("groups of 48", write, values=lambda: make()[1], layers=SITES)
