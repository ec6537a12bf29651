"""Metadata: what the reader recognises, reports and refuses."""

import math
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.reader import GGUFReader
from gguf import GGMLQuantizationType as Kind

from core.api import rope_config
from core.api.errors import CheckpointError

READER = GGUFReader()


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize(
    ("arch", "architecture", "bias"),
    [
        ("llama", "LlamaForCausalLM", False),
        ("qwen2", "Qwen2ForCausalLM", True),
        ("qwen3", "Qwen3ForCausalLM", False),
        ("gemma2", "Gemma2ForCausalLM", False),
        ("gemma3", "Gemma3ForCausalLM", False),
    ],
)
def test_metadata_becomes_a_configuration(tiny, arch, architecture, bias):
    info = READER.inspect(tiny(arch).path)
    assert (info.format, info.architecture, info.quantization) == ("gguf", architecture, "gguf")
    expected = {
        "architectures": [architecture],
        "model_type": {"gemma3": "gemma3_text"}.get(arch, arch),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "vocab_size": 300,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "attention_bias": bias,
        "torch_dtype": "float32",
    }
    assert {key: info.config[key] for key in expected} == expected


@pytest.mark.covers("QUANT-12")
def test_optional_facts(tiny):
    def extend(writer):
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_eot_token_id(5)
        writer.add_pad_token_id(2**32 - 1)
        writer.add_float32("general.sampling.temp", 0.6)
        writer.add_rope_dimension_count(16)

    made = tiny("llama", kind=Kind.Q8_0, tied=True, extend=extend)
    info = READER.inspect(made.path)
    assert info.config["tie_word_embeddings"] is True
    assert info.config["torch_dtype"] == "bfloat16"
    assert (info.config["bos_token_id"], info.config["eos_token_id"]) == (1, 2)
    assert "pad_token_id" not in info.config  # outside the vocabulary
    assert info.generation_config == {"temperature": 0.6, "bos_token_id": 1, "eos_token_id": [2, 5]}
    assert info.quantization_config["types"] == {"Q8_0": 15, "F32": 5}
    weights = sum(values.size for values in made.expected.values() if values.ndim == 2)
    norms = sum(values.size for values in made.expected.values() if values.ndim == 1)
    assert info.num_bytes == weights // 32 * 34 + norms * 4


def test_demo_model(demo_file):
    info = READER.inspect(demo_file)
    assert info.architecture == "LlamaForCausalLM"
    assert (info.config["num_hidden_layers"], info.config["hidden_size"], info.config["head_dim"]) == (30, 576, 64)
    assert info.config["tie_word_embeddings"] is True
    assert info.generation_config["eos_token_id"] == [2]


def test_start_up_path_loads_no_torch_and_is_quick(demo_file):
    program = (
        "import sys, time, pathlib\n"
        "from core_plugin_gguf.reader import GGUFReader\n"
        "path, reader, begun = pathlib.Path(sys.argv[1]), GGUFReader(), time.process_time()\n"
        "assert reader.recognises(path)\n"
        "reader.inspect(path)\n"
        "reader.tokenizer(path)\n"
        "heavy = {'torch', 'transformers', 'triton'} & set(sys.modules)\n"
        "print(heavy or 'light', time.process_time() - begun)\n"
    )
    result = subprocess.run([sys.executable, "-c", program, str(demo_file)], capture_output=True, text=True, check=True)
    weight, seconds = result.stdout.split()
    assert weight == "light"
    assert float(seconds) < 1.0  # about 0.15; a parser with an object per string takes 1.7


@pytest.mark.parametrize(
    ("keys", "expected", "context"),
    [
        ({"type": "none", "factor": 4.0}, None, 512),
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}, 2048),
        ({"factor": 1.0}, None, 512),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 256, "yarn_beta_fast": 16.0},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 16.0},
            1024,
        ),
    ],
)
def test_rotary_scaling(tiny, keys, expected, context):
    def extend(writer):
        for key, value in keys.items():
            add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
            add(f"llama.rope.scaling.{key}", value)

    config = READER.inspect(tiny(extend=extend).path).config
    assert config["rope_scaling"] == expected
    assert (config["max_position_embeddings"], rope_config(config, 16).context) == (512, context)


def llama3_divisors(theta, count, *, factor, low, high, original):
    """Llama 3's rule as its makers state it, in terms of wavelengths."""
    divisors = []
    for index in range(count):
        wavelength = 2 * math.pi * theta ** (index / count)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


@pytest.mark.parametrize(
    ("count", "rule"),
    [
        (64, {"factor": 8.0, "low": 1.0, "high": 4.0, "original": 8192}),
        (32, {"factor": 32.0, "low": 1.0, "high": 4.0, "original": 8192}),
        (64, {"factor": 16.0, "low": 1.0, "high": 8.0, "original": 4096}),
    ],
)
def test_llama3_scaling_is_recovered_from_its_divisors(tiny, count, rule):
    divisors = llama3_divisors(50000.0, count, **rule)
    made = tiny(extend=lambda writer: writer.add_tensor("rope_freqs.weight", divisors))
    scaling = READER.inspect(made.path).config["rope_scaling"]
    names = {"low": "low_freq_factor", "high": "high_freq_factor", "original": "original_max_position_embeddings"}
    assert scaling.pop("rope_type") == "llama3"
    assert scaling == pytest.approx({names.get(key, key): value for key, value in rule.items()}, rel=1e-3)
    assert "rope_freqs.weight" not in {tensor.name for tensor in READER.tensors(made.path, lambda size: None)}


@pytest.mark.parametrize("divisors", [[3.0, 1.0, 2.0, 1.0], [1.0, 1.0, 2.0, float("nan")], [1.0, 0.0, 1.0, 1.0]])
def test_unknown_divisors_are_refused(tiny, divisors):
    made = tiny(extend=lambda writer: writer.add_tensor("rope_freqs.weight", np.array(divisors, dtype=np.float32)))
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        READER.inspect(made.path)


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize(
    ("arch", "architecture"),
    [
        ("rwkv6", "Rwkv6ForCausalLM"),
        ("jina-bert-v2", "JinaBertModel"),
        ("neo-bert", "NeoBERT"),
        ("nomic-bert-moe", ""),
        ("never-heard-of", ""),
    ],
)
def test_other_architectures_are_named(tmp_path, arch, architecture):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", arch)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=f"{arch} cannot be read from GGUF; those of .* others can") as caught:
        READER.inspect(tmp_path / "other.gguf")
    assert (caught.value.code, caught.value.architecture) == ("CORE-M140", architecture)


def test_experts_of_an_architecture_without_are_refused(tiny):
    with pytest.raises(CheckpointError, match="qwen2 with experts"):
        READER.inspect(tiny("qwen2", extend=lambda writer: writer.add_expert_count(8)).path)


def test_a_llama_with_experts_is_a_mixtral(tiny):
    def extend(writer):
        writer.add_expert_count(8)
        writer.add_expert_used_count(2)

    info = READER.inspect(tiny(extend=extend).path)
    assert (info.architecture, info.config["num_local_experts"]) == ("MixtralForCausalLM", 8)


def test_a_llama_with_a_window_is_a_mistral(tiny):
    info = READER.inspect(tiny(extend=lambda writer: writer.add_sliding_window(128)).path)
    assert (info.architecture, info.config["sliding_window"]) == ("MistralForCausalLM", 128)
    assert info.config["architectures"] == ["MistralForCausalLM"]


GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16, "rope_local_base_freq": 1e4}


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize(
    ("arch", "keys", "expected"),
    [
        ("gemma2", {}, {**GEMMA, "sliding_window": 4096, "sliding_window_pattern": 2}),
        (
            "gemma2",
            {"attention.sliding_window": 8, "attn_logit_softcapping": 40.0, "final_logit_softcapping": 20.0},
            {"sliding_window": 8, "attn_logit_softcapping": 40.0, "final_logit_softcapping": 20.0},
        ),
        ("gemma3", {}, {**GEMMA, "sliding_window": None, "sliding_window_pattern": 6}),
        (
            "gemma3",
            {
                "attention.sliding_window": 8,
                "attention.sliding_window_pattern": 4,
                "rope.freq_base_swa": 2e4,
                "rope.scaling.type": "linear",
                "rope.scaling.factor": 8.0,
            },
            {
                "sliding_window": 8,
                "sliding_window_pattern": 4,
                "rope_local_base_freq": 2e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
    ],
)
def test_what_gemma_has_besides(tiny, arch, keys, expected):
    def extend(writer):
        for key, value in keys.items():
            add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
            add(f"{arch}.{key}", value)

    config = READER.inspect(tiny(arch, extend=extend).path).config
    assert {key: config[key] for key in expected} == expected
    assert ("attn_logit_softcapping" in config) is ("attn_logit_softcapping" in keys)


@pytest.mark.parametrize(("arch", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_gemmas_scale_scores_by_their_hidden_size(tmp_path, arch, layers):
    writer = gguf.GGUFWriter(tmp_path / "large.gguf", arch)
    sizes = {"embedding_length": 96, "feed_forward_length": 8, "context_length": 64, "block_count": layers}
    attention = {"attention.head_count": 4, "attention.key_length": 16}
    for key, value in {**sizes, **attention}.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)
    for name in ("token_embd", *(f"blk.{layer}.attn_norm" for layer in range(layers))):
        writer.add_tensor(f"{name}.weight", np.zeros((4, 96) if name == "token_embd" else 96, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert READER.inspect(tmp_path / "large.gguf").config["query_pre_attn_scalar"] == 24


def test_partly_rotated_heads_are_refused(tiny):
    with pytest.raises(CheckpointError, match="only 8 of the 16 dimensions") as caught:
        READER.inspect(tiny(extend=lambda writer: writer.add_rope_dimension_count(8)).path)
    assert caught.value.code == "CORE-M140"


@pytest.mark.parametrize("version", [2, 3])
def test_recognises_files_and_directories(tiny, tmp_path, version):
    path = tiny().path
    content = bytearray(path.read_bytes())
    content[4] = version
    path.write_bytes(content)
    assert READER.recognises(path)
    assert READER.recognises(tmp_path)
    assert READER.inspect(tmp_path).config == READER.inspect(path).config
    shutil.copy(path, tmp_path / "second.gguf")
    assert not READER.recognises(tmp_path)
    with pytest.raises(CheckpointError, match="exactly one"):
        READER.inspect(tmp_path)


def test_does_not_recognise_other_things(tmp_path):
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(tmp_path / "absent.gguf")
    for name, content in [
        ("a.gguf", b""),
        ("b.gguf", b"GGML\x03\0\0\0"),
        ("c.gguf", b"GGUF\x01\0\0\0"),
        ("d", b"GGUF"),
    ]:
        (tmp_path / name).write_bytes(content)
        assert not READER.recognises(tmp_path / name)


def test_split_checkpoint(tiny, tmp_path):
    made = tiny(split=8)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert [part.name for part in parts] == [f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert READER.recognises(parts[0])
    assert not READER.recognises(parts[1])
    assert READER.inspect(tmp_path).config["vocab_size"] == 300
    assert {tensor.name for tensor in READER.tensors(parts[0], lambda size: None)} == set(made.expected)
    with pytest.raises(CheckpointError, match="00001"):
        READER.inspect(parts[1])
    parts[2].unlink()
    with pytest.raises(CheckpointError, match=r"tiny-00003-of-00003\.gguf"):
        READER.inspect(parts[0])


def patched(path: Path, at: int, content: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("at", "content", "message"),
    [
        (0, b"GGML", "begins with"),
        (0, b"version https://git-lfs", "begins with"),
        (4, b"\x01\0\0\0", "version 1"),
        (4, b"\0\0\0\x03", "big-endian"),
        (8, b"\xff" * 8, "tensors"),
        (16, b"\xff" * 8, "metadata pairs"),
        (24, b"\xff" * 8, "name of"),
        (24, b"\0" * 8, "name of 0 bytes"),
    ],
)
def test_damaged_starts_are_named(tiny, at, content, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        READER.inspect(patched(tiny().path, at, content))
    assert caught.value.code == "CORE-M141"
    assert "tiny.gguf" in caught.value.message


def test_damaged_values_are_named(tiny):
    path = tiny().path
    clean = path.read_bytes()

    def inspect_with(marker, skip, content):
        path.write_bytes(clean)
        return READER.inspect(patched(path, clean.index(marker) + len(marker) + skip, content))

    for marker, skip, content, message in [
        (b"llama.block_count", 0, b"\x63", "llama.block_count has the unknown value type 99"),
        (b"llama.block_count", 4, b"\x00", "llama.block_count is 0"),
        (b"llama.block_count", 4, b"\xff\xff\xff\x7f", "llama.block_count is 2147483647, not a number from 1 to 10000"),
        (b"llama.block_count", 4, b"\x03", "llama.block_count is 3, but tensor blk.2.attn_norm.weight is missing"),
        (b"llama.context_length", 4, b"\x00\x00\x00\x80", "llama.context_length is 2147483648, not a number from 1"),
        (
            b"llama.feed_forward_length",
            4,
            b"\x61",
            "llama.feed_forward_length 97 tensor blk.0.ffn_up.weight has 97 rows",
        ),
        (
            b"llama.attention.key_length",
            4,
            b"\x20",
            "tensor blk.0.attn_q.weight has 128 rows, but the file gives it 64",
        ),
        (b"blk.0.attn_norm.weight", 16, b"\x00" * 8, "have the same place in it"),
        (b"layer_norm_rms_epsilon", 4, b"\x00\x00\xc0\x7f", "layer_norm_rms_epsilon is nan, not a positive number"),
        (b"llama.rope.freq_base", 4, b"\x00\x00\x80\xbf", "llama.rope.freq_base is -1.0, not a positive number"),
        (b"llama.block_count", 0, b"\x06", "llama.block_count is not a whole number"),
        (b"llama.embedding_length", 4, b"\x20", "token_embd.weight has shape"),
        (b"llama.attention.head_count_kv", 4, b"\x03", "3 key-value heads"),
        (b"token_embd.weight", 0, b"\x09", "token_embd.weight has 9 dimensions"),
        (b"token_embd.weight", 4, b"\x00", "token_embd.weight of shape"),
        (b"token_embd.weight", 11, b"\x7f", "the data of tensor token_embd.weight ends"),
        (b"token_embd.weight", 24, b"\x01", "token_embd.weight is not aligned"),
    ]:
        with pytest.raises(CheckpointError) as caught:
            inspect_with(marker, skip, content)
        assert message in caught.value.message
        assert caught.value.code == "CORE-M141"


def with_type(path, kind):
    marker = b"token_embd.weight"
    patched(path, path.read_bytes().index(marker) + len(marker) + 4 + 16, bytes([kind]))


def test_tensor_types_that_nobody_knows(tiny):
    path = tiny().path
    with_type(path, 200)
    for read in (READER.inspect, lambda path: list(READER.tensors(path, lambda size: None))):
        with pytest.raises(CheckpointError, match=r"token_embd.weight has type number 200") as caught:
            read(path)
        assert caught.value.code == "CORE-M142"


def test_tensor_types_that_cannot_be_decoded_are_told_and_given_as_they_are(tiny):
    """Another method may know what they mean; what it is asked for is a matter of the choice."""
    path = tiny().path
    with_type(path, int(Kind.I32))
    assert READER.inspect(path).quantization_config["undecodable"] == {"I32": "token_embd.weight"}
    tensor = next(one for one in READER.tensors(path, lambda size: None) if one.name == "model.embed_tokens.weight")
    assert tensor.raw().shape == (300, 256) and tensor.encoding == "gguf:I32"
    with pytest.raises(CheckpointError, match="has type I32, which cannot be decoded") as caught:
        tensor.dense(torch.float32)
    assert caught.value.code == "CORE-M142"


def test_repeated_tensors_are_refused(tiny):
    path = tiny().path
    data = path.read_bytes()
    path.write_bytes(data.replace(b"blk.0.attn_k.weight", b"blk.0.attn_v.weight"))
    with pytest.raises(CheckpointError, match=r"blk\.0\.attn_v\.weight appears twice"):
        READER.inspect(path)


def add_vocabulary(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"t{i}" for i in range(299)] + ["t1t2"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 300)
    writer.add_token_merges(["t1 t2"])
    writer.add_array("general.languages", ["en", "de"])


def use(path: Path) -> None:
    """Everything that reads a file."""
    READER.recognises(path)
    READER.inspect(path)
    READER.tokenizer(path)
    for tensor in READER.tensors(path, lambda size: None):
        tensor.raw()


def only_checkpoint_errors(path: Path) -> bool:
    """Say whether a file could be read; anything but a clean result or a `CheckpointError` escapes."""
    try:
        use(path)
    except CheckpointError as error:
        assert error.code.startswith("CORE-M14")
        return False
    return True


def test_truncation_anywhere(tiny, tmp_path):
    whole = tiny(extend=add_vocabulary).path.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole)
    assert only_checkpoint_errors(path)
    rng = random.Random(0)
    cuts = [0, 3, 4, 8, 23, 24, 25, len(whole) - 1, *(rng.randrange(9000) for _ in range(50)), len(whole) // 2]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        assert not only_checkpoint_errors(path), f"cut at {cut}"


def test_flipped_bytes_in_the_header(tiny, tmp_path):
    whole = tiny(extend=add_vocabulary).path.read_bytes()
    path, rng, begun = tmp_path / "flipped.gguf", random.Random(1), time.process_time()
    readable = 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(9000)] = rng.choice((0, 255, rng.randrange(256)))
        path.write_bytes(data)
        readable += only_checkpoint_errors(path)
    assert 0 < readable < 150
    assert time.process_time() - begun < 30
