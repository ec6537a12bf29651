"""Arrays that come with a prompt: how they travel, what is refused, and what keeps cached prefixes apart."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from core_plugin_pool import inputs as pooling_inputs
from core_plugin_pool.engine import ARRAY_DTYPES, Array, Pooling
from core_plugin_pool.inputs import PoolingInputs, PoolingPrompt

from core.api.errors import RequestError
from core.api.pooled import PoolingParams
from core.frontend.inputs import InputProcessor
from core.selection.no_tokenizer import NoTokenizer


@pytest.fixture
def inputs():
    return PoolingInputs(InputProcessor(NoTokenizer(10), vocab_size=10, max_model_len=8))


def prompt(**arrays):
    return {"prompt_token_ids": [0, 0], "arrays": arrays}


@pytest.mark.parametrize("dtype", ARRAY_DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_arrays_travel(dtype, shape):
    array = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    message = msgspec.msgpack.encode(Pooling(arrays={"x": Array.of(array)}))
    found = msgspec.msgpack.Decoder(Pooling).decode(message).arrays["x"].array()
    assert found.dtype == array.dtype and found.flags.writeable
    np.testing.assert_array_equal(found, array)


def test_views_and_other_byte_orders_travel_as_what_they_mean():
    array = np.arange(24, dtype=">f4").reshape(4, 6)[::2, ::-1]
    np.testing.assert_array_equal(Array.of(array).array(), array)


@pytest.mark.parametrize(
    "array",
    [
        Array("object", (1,), b"12345678"),
        Array("float32", (2,), b"1234"),
        Array("float32", (-1, -1), b"1234"),
        Array("U4", (1,), b"1" * 16),
    ],
)
def test_what_somebody_else_sends_is_checked(array):
    with pytest.raises(ValueError, match="an array of"):
        array.array()


@pytest.mark.parametrize(
    "given",
    [
        prompt(x=[1.0]),
        prompt(x=np.array(["a"])),
        prompt(x=np.array([object()])),
        prompt(x=np.zeros(2, np.complex64)),
        {"prompt_token_ids": [0], "arrays": np.zeros(3)},
        prompt(x=np.zeros(100)),
        {"prompt": "a text", "arrays": {}},
        {"prompt_token_ids": [], "arrays": {"x": np.zeros(1)}},
        {"prompt_token_ids": [0] * 9, "arrays": {"x": np.zeros(1)}},
    ],
)
def test_arrays_that_cannot_be_are_refused(inputs, given, monkeypatch):
    monkeypatch.setattr(pooling_inputs, "MAX_ARRAY_BYTES", 500)
    with pytest.raises(RequestError) as refused:
        inputs.prompts([given], PoolingParams(), "all", "data")
    assert refused.value.param == "data"


def test_prefixes_are_shared_only_with_the_same_arrays(inputs):
    def salt(given, *names):
        (found,) = inputs.prompts([given], PoolingParams(), "last")
        return found.salt(*names or (None,))

    one = salt(prompt(x=np.ones(3)))
    assert one == salt(prompt(x=np.ones(3))) != salt(prompt(x=np.zeros(3)))
    others = [salt(prompt(y=np.ones(3))), salt(prompt(x=np.ones((3, 1)))), salt(prompt(x=np.ones(3)), "s")]
    assert len({one, *others}) == 4
    assert PoolingPrompt([0], Pooling()).salt("s") == "s" and PoolingPrompt([0], Pooling()).salt(None) is None
