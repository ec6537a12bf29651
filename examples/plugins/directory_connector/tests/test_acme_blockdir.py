"""Blocks survive a restart; damage, a full disk and other models cost recomputation, never a wrong token."""

from __future__ import annotations

import os

import msgspec
import pytest
import torch
from acme_core_blockdir import mover as mover_module
from acme_core_blockdir.blockfile import file_of, read_block, write_block
from acme_core_blockdir.messages import Report, Transfer
from acme_core_blockdir.mover import DirectoryMover
from acme_core_blockdir.store import DirectoryStore

from core import LLM, SamplingParams
from core.api import BlockRef, ConfigError
from core.config.resolved import Options, SelectOptions
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.tinymodels import tiny_llama

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": [3 + (i * 7 + start) % 90 for i in range(45)]} for start in (0, 1)]
HASHES = [bytes([index]) * 16 for index in range(6)]
SIZE = 64


def run(checkpoint, directory, **options):
    settings = {
        "dtype": "float32",
        "num_blocks": 60,
        "block_size": 8,
        "hash_seed": "quiet",
        "plugin_options": {"blockdir": {"path": str(directory)}},
        **options,
    }
    with LLM(str(checkpoint), kv_connector=["blockdir"], **settings) as llm:
        outputs = llm.generate(PROMPTS, GREEDY)
        return [output.outputs[0].token_ids for output in outputs], llm.call("participant_stats")["blockdir"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def expected(checkpoint):
    with LLM(str(checkpoint), dtype="float32", num_blocks=60, block_size=8) as llm:
        return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY)]


def test_a_second_start_finds_the_blocks_of_the_first(checkpoint, expected, tmp_path):
    first, stats = run(checkpoint, tmp_path)
    assert (first, stats["loaded"]) == (expected, 0)
    assert stats["saved"] == len(list(tmp_path.glob("*.kv"))) >= 10
    second, stats = run(checkpoint, tmp_path)
    assert (second, stats["loaded"]) == (expected, 10)  # five full blocks of each prompt lie before its last token
    assert stats["saved"] == 0


def test_damaged_files_are_computed_anew(checkpoint, expected, tmp_path):
    run(checkpoint, tmp_path)
    for index, file in enumerate(sorted(tmp_path.glob("*.kv"))):
        data = bytearray(file.read_bytes())
        data[-1 - index] ^= 1
        file.write_bytes(data if index % 2 else data[:100])
    tokens, stats = run(checkpoint, tmp_path)
    assert (tokens, stats["loaded"]) == (expected, 0)
    assert stats["damaged"] >= 2
    assert run(checkpoint, tmp_path)[1]["loaded"] == 10  # written again


@pytest.mark.parametrize(
    "change", [{"hash_seed": None}, {"hash_seed": "another"}, {"kv_dtype": "bfloat16"}, {"attention_backend": "other"}]
)
def test_nothing_is_found_under_another_seed_dtype_or_layout(change, checkpoint, tmp_path):
    if "attention_backend" in change:
        pytest.importorskip("acme_core_einsum")
        change = {"attention_backend": "einsum_paged"}
    run(checkpoint, tmp_path)
    assert run(checkpoint, tmp_path, **change)[1]["loaded"] == 0


def test_new_weights_in_the_same_place_find_nothing(tmp_path):
    model = tiny_llama(tmp_path / "model")
    run(model, tmp_path / "blocks")
    assert run(tiny_llama(tmp_path / "model", seed=1), tmp_path / "blocks")[1]["loaded"] == 0


def store(path, blocks=4, **more):
    return DirectoryStore(
        {"path": str(path), "capacity": int(blocks * 100), **more}, block_size=8, bytes_per_block=SIZE
    )


def refs(*indices):
    return [BlockRef(index, HASHES[index], (10 + index,)) for index in indices]


def test_the_longest_unused_files_leave_first(tmp_path):
    for index in range(4):
        write_block(tmp_path, HASHES[index], bytes(SIZE))
        os.utime(file_of(tmp_path, HASHES[index]), ns=(index, index))
    engine = store(tmp_path)
    assert engine.match(HASHES, 0) == 4
    engine.load(refs(0))
    engine.save(refs(4, 5))
    transfer = msgspec.msgpack.decode(engine.plan_step(), type=Transfer)
    assert transfer.loads == [(HASHES[0], (10,))]
    assert [digest for digest, _ in transfer.saves] == [HASHES[4], HASHES[5]]
    assert sorted(file.stem for file in tmp_path.glob("*.kv")) == [HASHES[0].hex(), HASHES[3].hex()]
    engine.observe(msgspec.msgpack.encode(Report(1, 1, 1)))
    assert engine.plan_step() is None
    assert {"saved": 1, "failed": 1, "evicted": 2}.items() <= engine.stats().items()


def test_files_in_use_stay_until_the_step_is_reported(tmp_path):
    for index in range(2):
        write_block(tmp_path, HASHES[index], bytes(SIZE))
    engine = store(tmp_path, blocks=2)
    engine.load(refs(0))
    engine.plan_step()
    for index in (2, 3, 4):
        engine.save(refs(index))
        engine.plan_step()
        assert file_of(tmp_path, HASHES[0]).exists()
    engine.observe(msgspec.msgpack.encode(Report(4, 1, 0)))
    engine.save(refs(5))
    engine.plan_step()
    assert not file_of(tmp_path, HASHES[0]).exists()


def test_after_a_reset_blocks_are_kept_for_this_process_alone(tmp_path):
    write_block(tmp_path, HASHES[0], bytes(SIZE))
    engine = store(tmp_path)
    engine.save(refs(1))
    coming = msgspec.msgpack.decode(engine.plan_step(), type=Transfer)
    engine.reset()
    write_block(tmp_path, coming.saves[0][0], bytes(SIZE))  # it was on its way
    assert engine.match(HASHES, 0) == 0
    engine.save(refs(0))
    for key, _ in msgspec.msgpack.decode(engine.plan_step(), type=Transfer).saves:
        write_block(tmp_path, key, b"n" * SIZE)
    assert (engine.match(HASHES, 0), engine.stats()["private"]) == (1, 1)
    assert store(tmp_path).match(HASHES, 0) == 2  # the next start has the old weights again, and their blocks


def test_saves_of_a_step_that_failed_are_called_off(tmp_path, mover):
    engine = DirectoryStore({"path": str(tmp_path)}, block_size=8, bytes_per_block=80)
    engine.save([BlockRef(0, HASHES[0], (2,))])
    mover.begin(engine.plan_step())  # and then the forward pass fails: no end
    mover.begin(engine.plan_step())  # there is nothing to move, but something to call off
    engine.observe(mover.end())
    assert (engine.match(HASHES, 0), engine.plan_step()) == (0, None)


def test_a_file_under_a_wrong_name_is_no_block(tmp_path):
    write_block(tmp_path, HASHES[0], b"x" * SIZE)
    file_of(tmp_path, HASHES[0]).rename(file_of(tmp_path, HASHES[1]))
    assert read_block(tmp_path, HASHES[1], SIZE) is None
    assert store(tmp_path).match(HASHES[1:], 0) == 0


@pytest.fixture
def mover(tmp_path):
    worker = DirectoryMover({"path": str(tmp_path)})
    worker.bind([torch.arange(48, dtype=torch.bfloat16).view(6, 2, 4), torch.arange(96.0).view(6, 16)])
    return worker


def message(loads=(), saves=(), groups=1):
    return msgspec.msgpack.encode(Transfer(3, 80 * groups, list(loads), list(saves)))


def test_bytes_go_out_and_come_back_to_another_block(mover):
    mover.begin(message(saves=[(HASHES[0], (2,))]))
    assert msgspec.msgpack.decode(mover.end(), type=Report) == Report(3, 1, 0)
    mover.begin(message(loads=[(HASHES[0], (5,))]))
    for cache in mover._caches:
        assert torch.equal(cache[5], cache[2])
    assert mover.end() is not None
    assert mover.end() is None  # a step without a message


def test_a_file_that_goes_away_is_a_block_that_is_computed(mover):
    mover.begin(message(saves=[(HASHES[0], (2,))]))
    mover.end()
    assert mover.begin(message(loads=[(HASHES[1], (1,)), (HASHES[0], (5,))], saves=[(HASHES[2], (3,))])) == [1]
    assert torch.equal(mover._caches[0][5], mover._caches[0][2])
    assert msgspec.msgpack.decode(mover.end(), type=Report).saved == 1


def test_a_file_holds_a_block_of_each_cache_group(mover):
    mover.begin(message(saves=[(HASHES[0], (2, 4))], groups=2))
    mover.end()
    zero = [cache[0].clone() for cache in mover._caches]
    assert mover.begin(message(loads=[(HASHES[0], (0, 5)), (HASHES[1], (0, 3))], groups=2)) == [3]
    for cache, before in zip(mover._caches, zero, strict=True):
        assert torch.equal(cache[5], cache[4])
        assert torch.equal(cache[0], before)


def test_a_full_disk_is_reported_and_survived(mover, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mover_module, "write_block", full)
    mover.begin(message(saves=[(HASHES[0], (2,))]))
    assert msgspec.msgpack.decode(mover.end(), type=Report) == Report(3, 0, 1)
    assert list(tmp_path.iterdir()) == []


def test_unusable_options_name_what_is_wrong(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="ACME-K3"):
        store(tmp_path / "file")
    with pytest.raises(ConfigError, match="ACME-K4"):
        store(tmp_path, blocks=0.5)


def options(tmp_path, checkpoint, **kv):
    return Options(
        model=ModelOptions(model=str(checkpoint)),
        kv=KVOptions(**kv),
        select=SelectOptions(kv_connector=["blockdir"]),
        runtime=RuntimeOptions(plugin_options={"blockdir": {"path": str(tmp_path)}}),
    )


def test_the_hook_warns_without_a_seed_and_refuses_without_prefix_caching(tmp_path, checkpoint):
    assert "ACME-K1" in {one.code for one in resolve(options(tmp_path, checkpoint)).warnings}
    assert "ACME-K1" not in {one.code for one in resolve(options(tmp_path, checkpoint, hash_seed="s")).warnings}
    with pytest.raises(ConfigError, match="ACME-K2"):
        resolve(options(tmp_path, checkpoint, hash_seed="s", prefix_caching=False))
