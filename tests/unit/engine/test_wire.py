from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.api.errors import EngineError
from core.api.sampling_params import SamplingParams
from core.api.steps import BlockUpdate, NewRow, StepPlan, StepResult, TopLogprobs, WorkerInfo
from core.api.wire import MessageDecoder, encode_message

PLANS: MessageDecoder[StepPlan] = MessageDecoder(StepPlan)
RESULTS: MessageDecoder[StepResult] = MessageDecoder(StepResult)
ARRAYS: MessageDecoder[np.ndarray] = MessageDecoder(np.ndarray)

dtypes = st.sampled_from(["bool", "int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "f2", "f4", "f8"])
arrays = dtypes.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)))
int32s = hnp.arrays(np.int32, st.integers(0, 6))
params = st.builds(
    SamplingParams,
    temperature=st.floats(0, 2),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 99), st.floats(-100, 100), max_size=3),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=2),
)
rows = st.builds(NewRow, row=st.integers(0, 99), prompt=int32s, params=params, stop_ids=st.tuples(st.integers(0, 9)))
reports = st.dictionaries(st.text(max_size=5), st.binary(max_size=20), max_size=2)
plans = st.builds(
    StepPlan,
    number=st.integers(0, 2**40),
    new_rows=st.lists(rows, max_size=2),
    blocks=st.lists(st.builds(BlockUpdate, int32s, int32s, int32s, int32s), max_size=3).map(tuple),
    rows=int32s,
    starts=int32s,
    counts=int32s,
    samples=hnp.arrays(np.bool_, st.integers(0, 6)),
    output_counts=int32s,
    parts=reports,
    loads=st.dictionaries(st.text(max_size=4), st.lists(st.integers(1, 99), max_size=4), max_size=2),
    leaving=st.lists(st.text(max_size=4), max_size=2),
    drafts=st.none() | int32s,
)
tops = st.builds(
    TopLogprobs,
    ids=hnp.arrays(np.int32, (2, 3)),
    values=hnp.arrays(np.float32, (2, 3)),
    ranks=hnp.arrays(np.int32, 2),
)
results = st.builds(
    StepResult,
    number=st.integers(0, 2**40),
    tokens=int32s,
    logprobs=st.dictionaries(st.integers(0, 99), tops, max_size=2),
    prompt_logprobs=st.dictionaries(st.integers(0, 99), tops, max_size=2),
    errors=st.dictionaries(st.integers(0, 99), st.text(max_size=9), max_size=2),
    parts=reports,
    lost=st.lists(st.integers(1, 99), max_size=4),
    faults=st.dictionaries(st.text(max_size=4), st.lists(st.text(max_size=9), max_size=2), max_size=2),
    counts=st.none() | int32s,
)


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@given(arrays)
def test_arrays_come_back_equal_and_writable(array: np.ndarray) -> None:
    back = ARRAYS.decode(encode_message(array))
    assert same(back, np.ascontiguousarray(array).reshape(array.shape))
    assert back.flags.writeable


@given(plans)
@settings(max_examples=50)
def test_plans_come_back_equal(plan: StepPlan) -> None:
    assert same(PLANS.decode(encode_message(plan)), plan)


@given(results)
@settings(max_examples=50)
def test_results_come_back_equal(result: StepResult) -> None:
    assert same(RESULTS.decode(encode_message(result)), result)


def test_worker_info_comes_back_equal() -> None:
    info = WorkerInfo(7, 4096, {"device": "cpu"}, [("load", 0.25)])
    assert MessageDecoder(WorkerInfo).decode(encode_message(info)) == info


def test_strided_views_keep_their_values() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[::2, 1::2].T
    assert np.array_equal(ARRAYS.decode(encode_message(array)), array)


@given(st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_engine_errors(data: bytes) -> None:
    for decoder in (PLANS, RESULTS, ARRAYS):
        with pytest.raises(EngineError, match="CORE-E131"):
            decoder.decode(data)


@given(plans, st.data())
@settings(max_examples=50)
def test_damaged_plans_decode_or_raise_engine_errors(plan: StepPlan, data: st.DataObject) -> None:
    message = bytearray(encode_message(plan))
    for _ in range(3):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        PLANS.decode(bytes(message))
    except EngineError as error:
        assert error.code == "CORE-E131"


@pytest.mark.parametrize(
    "packed",
    [
        ["|O", [1], b"12345678"],
        ["<M8[s]", [1], b"12345678"],
        ["<i4", [-1], b"1234"],
        ["<i4", [2], b"1234"],
        ["<i4", [1] * 9, b"1234"],
        ["<i4", [2**62, 4], b""],
        ["<i4", [True], b"1234"],
        ["<i4", 1, b"1234"],
        ["<i4", [1], "1234"],
        [["<i4"], [1], b"1234"],
        ["<i4", [1]],
        {},
        None,
    ],
)
def test_untrue_claims_about_an_array_are_refused(packed: object) -> None:
    with pytest.raises(EngineError, match="CORE-E131"):
        ARRAYS.decode(msgspec.msgpack.encode(packed))


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    with pytest.raises(EngineError, match="CORE-E131"):
        ARRAYS.decode(b"\x91" * 100_000)


@pytest.mark.parametrize("value", [object(), np.array([object()]), np.array(["text"]), {"a": {1, object()}}, 2**70])
def test_what_is_not_plain_data_cannot_be_sent(value: object) -> None:
    with pytest.raises(EngineError, match="CORE-E131"):
        encode_message(value)


def test_import_is_free_of_torch() -> None:
    code = "import sys, core.api.wire; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
