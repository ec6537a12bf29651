"""The checkpoints that the comparison of engines makes."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import tokenizers
import torch

ROOT = Path(__file__).resolve().parents[2]


def test_w8a8_checkpoints_hold_the_weights_by_channel(tmp_path, monkeypatch):
    from safetensors.torch import load_file, save_file

    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.compare import models

    source = tmp_path / "smollm2-bf16"
    source.mkdir()
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight[3] = 0
    kept = {"model.embed_tokens.weight": torch.ones(4, 16), "model.norm.weight": torch.ones(16)}
    save_file({"model.layers.0.self_attn.q_proj.weight": weight, **kept}, source / "model.safetensors")
    (source / "config.json").write_text('{"model_type": "llama"}')

    made = models.prepare(tmp_path, "w8a8")
    tensors = load_file(made / "model.safetensors")
    values, scale = (tensors[f"model.layers.0.self_attn.q_proj.weight{end}"] for end in ("", "_scale"))
    assert values.dtype == torch.int8 and scale.shape == (8, 1)
    assert (values.float() * scale - weight.float()).abs().le(scale / 2 + 1e-6).all()
    assert torch.equal(tensors["model.norm.weight"], kept["model.norm.weight"])
    config = json.loads((made / "config.json").read_text())
    assert config["model_type"] == "llama" and config["quantization_config"]["format"] == "int-quantized"
    assert models.prepare(tmp_path, "w8a8") == made  # not made twice


@pytest.mark.parametrize("form", ["awq", "gptq", "gptq-act-order"])
def test_four_bit_checkpoints_hold_the_weights_in_groups(tmp_path, monkeypatch, form):
    from core_plugin_awq.scheme import AWQFormat
    from core_plugin_gptq.scheme import GPTQFormat
    from safetensors.torch import load_file, save_file

    from core.api import LayerSite, QuantContext
    from core_testing.layers import PlainTensor, fill, make_layer

    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.compare import models

    source = tmp_path / "smollm2-bf16"
    source.mkdir()
    site = LayerSite("linear", "model.layers.0.self_attn", 128, (("q_proj", 16), ("k_proj", 8)))
    names = [f"{site.prefix}.{part}" for part, _ in site.parts]
    weights = [torch.randn(rows, 128, generator=torch.Generator().manual_seed(rows)) for _, rows in site.parts]
    save_file({f"{name}.weight": one for name, one in zip(names, weights)}, source / "model.safetensors")
    (source / "config.json").write_text("{}")

    made = models.prepare(tmp_path, form)
    tensors, config = load_file(made / "model.safetensors"), json.loads((made / "config.json").read_text())
    kind = AWQFormat if form == "awq" else GPTQFormat
    context = QuantContext(torch.device("cpu"), torch.float32, config["quantization_config"])
    layer = make_layer(kind(context), site)
    fill(layer.group, [PlainTensor(*pair) for pair in tensors.items()])
    error = layer.params["weight"] - torch.cat(weights)
    assert 0 < error.norm() < 0.12 * torch.cat(weights).norm()
    if form != "awq":
        groups = [tensors[f"{name}.g_idx"] for name in names]
        assert torch.equal(*groups)  # fed the same, ordered the same
        assert torch.equal(groups[0], groups[0].sort().values) == (form == "gptq")


def test_super_blocks_hold_the_values_and_other_widths_are_other_types(monkeypatch):
    gguf = pytest.importorskip("gguf")
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.compare import four_bit, models

    values = torch.randn(6, 512, generator=torch.Generator().manual_seed(0)).numpy()
    values[2] = 0
    values[3] += 7
    found = gguf.quants.dequantize(four_bit.q4_k(values), gguf.GGMLQuantizationType.Q4_K)
    assert abs(found - values).max() < 0.4  # half a step of 15 from 0 to 10
    assert (found[2] == 0).all()
    named = {("blk.0.ffn_down.weight", 512), ("token_embd.weight", 64), ("blk.0.attn_q.weight", 64)}
    types = {name: models._type_of(name, (4, width), "Q4_K") for name, width in named}
    assert types == {
        "blk.0.ffn_down.weight": "Q4_K",
        "token_embd.weight": "Q8_0",
        "blk.0.attn_q.weight": "Q5_0",
    }


@pytest.mark.parametrize("kind", ["BF16", "Q8_0", "Q4_0"])
def test_gguf_files_hold_the_demo_models_values(tmp_path, monkeypatch, kind):
    gguf = pytest.importorskip("gguf")
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.compare import models

    demo = tmp_path / "demo.gguf"
    writer = gguf.GGUFWriter(demo, "llama")
    writer.add_block_count(1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    values = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).numpy()
    writer.add_tensor("token_embd.weight", values)
    writer.add_tensor("output_norm.weight", values[0])
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    monkeypatch.setattr(models, "demo_file", lambda: demo)

    reader = gguf.GGUFReader(models.prepare(tmp_path, f"gguf-{kind.lower()}"))
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors["token_embd.weight"].tensor_type.name == kind
    found = gguf.quants.dequantize(tensors["token_embd.weight"].data, tensors["token_embd.weight"].tensor_type)
    assert abs(found - values).max() < {"BF16": 0.02, "Q8_0": 0.02, "Q4_0": 0.4}[kind]
    assert tensors["output_norm.weight"].tensor_type.name == "F32"
    assert reader.get_field("tokenizer.ggml.tokens").contents() == ["a", "b"]
    assert reader.get_field("llama.block_count").contents() == 1


@pytest.fixture
def tiny(monkeypatch):
    """Small models of the kinds that are compared, and where the rows of a vocabulary begin to be zero."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.compare import shapes
    from benchmarks.compare.shapes import dense, files

    sizes = {"hidden": 256, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 64, "size": 512}
    made = {
        "llama": dense._llama("tiny", dense.Dense(**sizes)),
        "qwen3": dense._qwen3("tiny", dense.Dense(**sizes, head_norms=True), tied=False),
        "gemma3": dense._gemma3("tiny", dense.Dense(**sizes, head_norms=True, post_norms=True, window=8)),
    }
    small = {name: replace(shape, vocabulary=320) for name, shape in made.items()}
    monkeypatch.setattr(shapes, "SHAPES", small)
    monkeypatch.setattr(files, "KNOWN", 280)
    return small


def _answers(model: Path) -> list[int]:
    from core import LLM, SamplingParams

    sizes = {"max_model_len": 64, "max_num_seqs": 2, "kv_memory": "16MiB"}
    with LLM(str(model), dtype="bfloat16", prefix_caching=False, **sizes) as llm:
        params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=12, detokenize=False)
        return list(llm.generate([{"prompt_token_ids": list(range(20, 40))}], params)[0].outputs[0].token_ids)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_shapes_are_models_in_every_form(tmp_path, tiny, name):
    from transformers import AutoModelForCausalLM

    from benchmarks.compare import models
    from benchmarks.compare.cases import OFFLINE
    from benchmarks.compare.shapes import stored

    (tmp_path / "smollm2-bf16").mkdir()
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(280)}, "w0")
    tokenizers.Tokenizer(words).save(str(tmp_path / "smollm2-bf16" / "tokenizer.json"))
    shape, found = tiny[name], {}
    plain = {tensor: 2 * prod(size) for tensor, size in shape.tensors()}
    for form in ("bf16", "gguf-bf16", "w8a8", "awq"):
        made = models.prepare(tmp_path, f"{name}:{form}")
        found[form] = stored.tensor_bytes(made)
        if form.endswith("bf16") or name == "llama":
            answers = _answers(made)
            assert len(answers) == 12 and max(answers) < 280
    assert found["bf16"] == plain
    _, told = AutoModelForCausalLM.from_pretrained(tmp_path / f"{name}-bf16", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert sum(found["gguf-bf16"].values()) > sum(plain.values())  # norms are float32
    linears = sum(size for tensor, size in plain.items() if tensor.endswith("_proj.weight"))
    for form, share in (("w8a8", 0.5), ("awq", 0.25)):
        saved = sum(plain.values()) - sum(found[form].values())
        assert (1 - share - 0.03) * linears < saved < (1 - share) * linears
    work = stored.work(shape, tmp_path / f"{name}-bf16", OFFLINE)
    embedding = 0 if shape.tied else plain["model.embed_tokens.weight"]
    assert work["tokens"]["decode"]["bytes"] == sum(plain.values()) - embedding + shape.kv_bytes(16 + 64)
    assert work["tokens"]["prefill"]["operations"] == 2 * shape.prompt_products(1024) / 1024
    assert set(work["tokens"]) == {"decode", "prefill"}
    assert work["weights_mib"] == sum(plain.values()) / 2**20


def test_other_types_are_made_by_llama_cpps_program(tmp_path, tiny, monkeypatch):
    from benchmarks.compare import models

    ran = []

    def run(program, source, target, kind):
        ran.append((program, Path(source).name, kind))
        Path(target).write_bytes(Path(source).read_bytes())

    monkeypatch.setattr(models, "run", run)
    monkeypatch.setattr(models.llama_cpp, "quantizer", lambda folder: folder / "llama-quantize")
    folder = tmp_path / "models"
    assert models.prepare(folder, "llama:gguf-q4_k_m").name == "llama-q4_k_m.gguf"
    assert ran == [(str(tmp_path / "llama-quantize"), "llama-bf16.gguf", "Q4_K_M")]
    assert (folder / "llama-bf16.gguf").exists() and not list(folder.glob("partial*"))
