"""Checkpoints in Hugging Face's layout: facts, file order, and every way in which files can be wrong."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
import sys

import pytest
import torch
from core_plugin_huggingface.files import INDEX, natural_key, open_shards
from core_plugin_huggingface.reader import SafetensorsReader
from safetensors.torch import load_file, save_file

from core.api import CheckpointError
from core_testing.tinymodels import tiny_llama

READER = SafetensorsReader()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("sharded"), shard_size="40KB")


@pytest.fixture
def copy(tmp_path, whole, sharded):
    """Return a function that copies one of the checkpoints to where a test may break it."""

    def make(which):
        shutil.copytree({"whole": whole, "sharded": sharded}[which], tmp_path / which)
        return tmp_path / which

    return make


def fails(code, *words, path, call=READER.inspect):
    with pytest.raises(CheckpointError) as caught:
        call(path)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


def rewrite(path, change):
    """Change a JSON file's object in place."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_facts(whole):
    assert READER.recognises(whole)
    info = READER.inspect(whole)
    assert (info.architecture, info.format, info.quantization) == ("LlamaForCausalLM", "safetensors", "none")
    assert info.config["hidden_size"] == 64
    assert info.generation_config["eos_token_id"] == 2
    assert info.num_bytes == sum(tensor.raw().nbytes for tensor in READER.tensors(whole, lambda count: None))


def test_the_quantization_method_is_the_checkpoints(copy):
    directory = copy("whole")
    description = {"quant_method": "awq", "bits": 4}
    rewrite(directory / "config.json", lambda config: config.update(quantization_config=description))
    info = READER.inspect(directory)
    assert (info.quantization, info.quantization_config) == ("awq", description)
    rewrite(directory / "config.json", lambda config: config.update(quantization_config={"load_in_4bit": True}))
    assert READER.inspect(directory).quantization == "unknown"


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize(
    ("file", "content", "found"),
    [
        ("config.json", {"compression_config": {"quant_method": "a"}}, {"quant_method": "a"}),
        ("config.json", {"text_config": {"quantization_config": {"quant_method": "b"}}}, {"quant_method": "b"}),
        ("quantize_config.json", {"bits": 4}, {"quant_method": "gptq", "bits": 4}),
        ("quant_config.json", {"w_bit": 4}, {"quant_method": "awq", "w_bit": 4}),
        ("hf_quant_config.json", {"quantization": {"a": 1}}, {"quant_method": "modelopt", "a": 1}),
    ],
)
def test_other_places_of_its_description(copy, file, content, found):
    directory = copy("whole")
    if file == "config.json":
        rewrite(directory / file, lambda config: config.update(content))
    else:
        (directory / file).write_text(json.dumps(content))
    info = READER.inspect(directory)
    assert (info.quantization, info.quantization_config) == (found["quant_method"], found)


def test_a_description_in_a_file_of_its_own_is_checked(copy):
    directory = copy("whole")
    (directory / "hf_quant_config.json").write_text('{"quantization": []}')
    with pytest.raises(CheckpointError, match=r"hf_quant_config.json: 'quantization_config' is not a JSON object"):
        READER.inspect(directory)


def test_other_directories_are_not_recognised(tmp_path, whole):
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(whole / "config.json")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.gguf").touch()
    assert not READER.recognises(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert READER.recognises(tmp_path)


@pytest.mark.covers("MODEL-02")
def test_shards_are_read_in_natural_order(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    for number in (10, 2, 1):
        save_file({f"t{number}": torch.full((2,), float(number))}, tmp_path / f"model-{number}.safetensors")
    tensors = list(READER.tensors(tmp_path, lambda count: None))
    assert [tensor.name for tensor in tensors] == ["t1", "t2", "t10"]
    assert [float(tensor.raw()[0]) for tensor in tensors] == [1.0, 2.0, 10.0]  # still readable after their turn
    index = {"weight_map": {f"t{number}": f"model-{number}.safetensors" for number in (10, 2, 1)}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert [shard.path.name for shard in open_shards(tmp_path)] == [f"model-{n}.safetensors" for n in (1, 2, 10)]


def test_natural_order_of_mixed_names():
    names = ["a10.x", "a9.x", "a.x", "b1", "10", "a9b2", "2"]
    assert sorted(names, key=natural_key) == ["2", "10", "a9.x", "a9b2", "a10.x", "a.x", "b1"]


def test_files_that_the_index_does_not_name_are_not_read(copy):
    directory = copy("sharded")
    save_file({"extra": torch.zeros(1)}, directory / "consolidated.safetensors")
    assert "extra" not in {tensor.name for tensor in READER.tensors(directory, lambda count: None)}


def test_tensors_report_their_bytes(sharded):
    counts = []
    for tensor in READER.tensors(sharded, counts.append):
        assert tensor.encoding == "plain"
        assert tensor.shape == tuple(tensor.raw().shape)
        assert tensor.dense(torch.bfloat16).dtype == torch.bfloat16
    assert sum(counts) == READER.inspect(sharded).num_bytes


def test_a_file_that_is_cut_off_is_named_with_the_tensor(copy):
    file = copy("whole") / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1000])
    fails("CORE-M130", "model.safetensors", "tensor '", "but the file has only", path=file.parent)
    file.write_bytes(content[:40])
    fails("CORE-M130", "model.safetensors", "header", "40 bytes", path=file.parent)
    file.write_bytes(content[:5])
    fails("CORE-M130", "model.safetensors", path=file.parent)


def test_a_shard_that_is_cut_off_is_named(copy):
    directory = copy("sharded")
    file = sorted(directory.glob("*.safetensors"))[3]
    file.write_bytes(file.read_bytes()[:-1])
    fails("CORE-M130", file.name, path=directory)


def _file(header, data=b"\0" * 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff" * 8 + b"{}", "header should be"),
        (_file(b"{not json"), "not valid JSON"),
        (_file(b"\xff\xfe{}"), "not valid JSON"),
        pytest.param(_file(b"[" * 100_000), "not valid JSON", id="deep"),
        (_file([1]), "not a JSON object"),
        (_file({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 16]}}), "ends at byte 16"),
        (_file({"t": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}), "has 8 bytes"),
        (_file({"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}), "ends before it begins"),
        (_file({"t": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}), "not understood"),
        (_file({"t": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}), "not understood"),
        (_file({"t": {"dtype": "F32", "shape": [2], "data_offsets": "08"}}), "not understood"),
        (_file({"t": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}}), "not understood"),
        (_file({"t": {"dtype": "F32", "shape": [2]}}), "not understood"),
        (_file({"t": None}), "not understood"),
    ],
)
def test_a_corrupt_header_is_an_error_that_names_the_file(copy, content, words):
    file = copy("whole") / "model.safetensors"
    file.write_bytes(content)
    fails("CORE-M130", "model.safetensors", words, path=file.parent)


def test_two_tensors_in_one_place_are_refused(copy):
    file = copy("whole") / "model.safetensors"
    whole = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    file.write_bytes(_file({"a": whole, "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}))
    fails("CORE-M130", "model.safetensors", "'a'", "'b'", path=file.parent)


def test_a_dtype_that_torch_lacks_is_refused_when_the_tensor_is_read(copy):
    file = copy("whole") / "model.safetensors"
    file.write_bytes(_file({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}))
    fails("CORE-M130", "'a'", "F4", path=file.parent, call=lambda path: list(READER.tensors(path, print)))


def test_what_was_released_is_still_there(copy):
    directory = copy("whole")
    for tensor in READER.tensors(directory, lambda count: None):
        before = tensor.raw().clone()
        tensor.release()
        torch.testing.assert_close(tensor.raw(), before, rtol=0, atol=0)


def test_random_damage_of_the_header_never_escapes_as_another_error(copy):
    file = copy("whole") / "model.safetensors"
    content, rng = file.read_bytes(), random.Random(0)
    length = int.from_bytes(content[:8], "little")
    for _ in range(200):
        broken = bytearray(content)
        for _ in range(3):
            broken[rng.randrange(8 + length)] = rng.randrange(256)
        file.write_bytes(broken)
        try:
            open_shards(file.parent)
        except CheckpointError as error:
            assert error.code == "CORE-M130"


def test_a_missing_shard_is_named(copy):
    directory = copy("sharded")
    file = sorted(directory.glob("*.safetensors"))[2]
    file.unlink()
    fails("CORE-M132", file.name, INDEX, path=directory)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", 7])
def test_an_index_cannot_lead_out_of_the_directory(copy, name):
    directory = copy("sharded")
    rewrite(directory / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": name}))
    fails("CORE-M131", "model.norm.weight", path=directory)


def test_a_tensor_that_the_index_promises_must_be_there(copy):
    directory = copy("sharded")
    first = sorted(directory.glob("*.safetensors"))[0].name
    rewrite(directory / INDEX, lambda index: index["weight_map"].update({"ghost": first}))
    fails("CORE-M130", "ghost", first, path=directory)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"weight_map": {}}'])
def test_a_broken_index_is_named(copy, content):
    directory = copy("sharded")
    (directory / INDEX).write_text(content)
    fails("CORE-M131", INDEX, path=directory)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused(copy, name):
    directory = copy("whole")
    (directory / "model.safetensors").rename(directory / name)
    fails("CORE-M133", name, "pickled", path=directory)


def test_a_directory_without_weights(copy):
    directory = copy("whole")
    (directory / "model.safetensors").unlink()
    fails("CORE-M134", str(directory), path=directory)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        pytest.param("[" * 100_000, "cannot be read", id="deep"),
        ("[]", "not a JSON object"),
        ("{}", "architectures"),
        ('{"architectures": []}', "architectures"),
    ],
)
def test_a_broken_configuration_is_named(copy, content, words):
    directory = copy("whole")
    (directory / "config.json").write_text(content)
    fails("CORE-M131", "config.json", words, path=directory)


def test_code_of_the_checkpoint_is_never_run(copy):
    directory = copy("whole")
    marker = directory / "ran"
    (directory / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    rewrite(directory / "config.json", lambda config: config.update(auto_map={"AutoConfig": "evil.Config"}))
    assert READER.inspect(directory).architecture == "LlamaForCausalLM"
    assert list(READER.tensors(directory, lambda count: None))
    assert not marker.exists()


def test_the_tokenizer_is_the_directorys(whole):
    tokenizer = READER.tokenizer(whole)
    text = "the engine reads blocks of memory"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_ids == (2,)
    assert "im_start" in tokenizer.chat_template


def test_inspection_loads_no_torch(whole):
    code = (
        "import sys, pathlib, core_plugin_huggingface.manifest, core_plugin_huggingface.hub\n"
        "from core_plugin_huggingface.local import LocalSource\n"
        "from core_plugin_huggingface.reader import SafetensorsReader\n"
        "reader, path = SafetensorsReader(), pathlib.Path(LocalSource().resolve(sys.argv[1]).path)\n"
        "assert reader.recognises(path) and reader.inspect(path) and reader.tokenizer(path)\n"
        "sys.exit(bool({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(whole)], check=False).returncode == 0


@pytest.mark.parametrize("which", ["whole", "sharded"])
def test_the_command_that_converts_pickled_weights_works(copy, which):
    directory = copy(which)
    expected = {tensor.name: tensor.dense(torch.float32) for tensor in READER.tensors(directory, lambda size: None)}
    for path in [*directory.glob("*.safetensors")]:
        torch.save(
            load_file(path), directory / path.name.replace("model", "pytorch_model").replace("safetensors", "bin")
        )
        path.unlink()
    (directory / INDEX).unlink(missing_ok=True)
    torch.save({"lr": 1}, directory / "training_args.bin")
    with pytest.raises(CheckpointError) as caught:
        READER.inspect(directory)
    words = shlex.split(caught.value.hint.split("`")[1])
    subprocess.run([sys.executable, *words[1:]], check=True, timeout=120)
    found = {tensor.name: tensor.dense(torch.float32) for tensor in READER.tensors(directory, lambda size: None)}
    assert found.keys() == expected.keys() == READER.inspect(directory).tensors.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_weights_of_a_maker_s_own_layout_are_refused(copy):
    directory = copy("whole")
    (directory / "model.safetensors").rename(directory / "consolidated.00.pth")
    fails("CORE-M133", "consolidated.00.pth", "Hugging Face's layout", path=directory)
