"""Messages from the other process that are none."""

from __future__ import annotations

import random

import msgspec
import pytest

from core.api.sampling_params import SamplingParams
from core.engine.inbound import Inbound, possible, read_from_engine
from core.engine.messages import (
    Abort,
    Add,
    Call,
    CallResult,
    Failed,
    Finished,
    FromEngine,
    Logprobs,
    Outputs,
    Progress,
    Pulse,
    Ready,
    Started,
    Stats,
    ToEngine,
)

ERROR = {"code": "CORE-E100", "message": "broken."}
GOOD = {
    ToEngine: [Add(handle=1, prompt=b"1234", params=SamplingParams()), Abort([1, 2]), Call(1, "stats", [{"a": [1]}])],
    FromEngine: [
        Outputs(handles=b"12345678", tokens=b"1234", logprobs={0: Logprobs([1], [0.5], 1)}, stats=Stats(running=1)),
        CallResult(1, {"a": 1}),
        CallResult(1, error=ERROR),
        Failed(ERROR),
    ],
}
WRONG = [
    Outputs(handles=b"1234567", tokens=b"1234"),
    Outputs(handles=b"12345678", tokens=b"123"),
    Outputs(handles=b"12345678"),
    Outputs(handles=b"12345678", tokens=b"1234", logprobs={1: Logprobs([1], [0.5], 1)}),
    CallResult(1, error={"message": "no code"}),
    Failed({"code": 3, "message": "x"}),
    Outputs(handles=b"12345678", tokens=(100).to_bytes(4, "little")),
    Outputs(handles=b"12345678", tokens=b"\xff\xff\xff\xff"),
    Outputs(handles=b"12345678", tokens=bytes(4), logprobs={0: Logprobs([1, 2], [0.5], 1)}),
    Outputs(handles=b"12345678", tokens=bytes(4), logprobs={0: Logprobs([100], [0.5], 1)}),
    Outputs(handles=b"12345678", tokens=bytes(4), logprobs={0: Logprobs([], [], 1)}),
    Outputs(handles=b"12345678", tokens=bytes(4), logprobs={0: Logprobs([1], [0.5], -1)}),
    Outputs(prompt_logprobs={1: [Logprobs([-1], [0.5], 1)]}),
    Outputs(started=[Started(1, -1)]),
    Outputs(finished=[Finished(1, "tired")]),
    Outputs(finished=[Finished(-1, "stop")]),
    Outputs(stats=Stats(running=-1)),
    Pulse(-1.0),
    Pulse(float("nan")),
    Progress(-1, 5),
    Ready(num_blocks=3, block_size=0, max_model_len=5, facts={}, timeline=[]),
]


def mutated(rng, data):
    """Return bytes that are nearly a message."""
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        return rng.randbytes(rng.randrange(200))
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed) if kind == 2 else bytes(changed) + rng.randbytes(rng.randrange(20))


@pytest.mark.parametrize("kind", GOOD, ids=["to", "from"])
def test_a_message_or_none(kind):
    """Nothing is raised, whatever comes; each one is read or counted."""
    rng, inbound, read = random.Random(0), Inbound(kind), 0
    encoded = [msgspec.msgpack.encode(message) for message in GOOD[kind]]
    for _ in range(4000):
        read += inbound.read(mutated(rng, rng.choice(encoded))) is not None
    assert inbound.dropped + read == 4000 and inbound.dropped > 1000
    assert [inbound.read(data) for data in encoded] == GOOD[kind]


def test_depth_and_claimed_lengths():
    inbound = Inbound(ToEngine)
    deep = msgspec.msgpack.encode({"type": "call", "number": 1, "method": "x"})
    for data in (
        b"\x91" * 200_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        deep[:-1],
    ):
        assert inbound.read(data) is None
    assert inbound.dropped == 5


@pytest.mark.parametrize("message", WRONG, ids=repr)
def test_parts_that_do_not_belong_together(message):
    inbound = Inbound(FromEngine, 100)
    assert inbound.read(msgspec.msgpack.encode(message)) is None and inbound.dropped == 1


def adding(prompt=b"\1\0\0\0", **fields):
    params = {name: fields.pop(name) for name in list(fields) if name in SamplingParams.__struct_fields__}
    return Add(**{"handle": 1, "prompt": prompt, "params": SamplingParams(**params), **fields})


@pytest.mark.parametrize(
    "fields",
    [{"handle": -1}, {"handle": 2**63}, {"priority": 2**64 - 1}, {"stop_ids": [-1]}, {"held_ids": [2**40]}],
    ids=repr,
)
def test_numbers_of_a_request_that_are_out_of_range(fields):
    inbound = Inbound(ToEngine)
    assert inbound.read(msgspec.msgpack.encode(adding(**fields))) is None and inbound.dropped == 1


@pytest.mark.parametrize(
    ("fields", "sound"),
    [
        ({}, True),
        ({"prompt": (99).to_bytes(4, "little") * 5, "generated": bytes(8), "bad_token_ids": [[1], [99]]}, True),
        ({"prompt": b""}, False),
        ({"prompt": b"12345"}, False),
        ({"prompt": (100).to_bytes(4, "little")}, False),
        ({"generated": b"\xff\xff\xff\xff"}, False),
        ({"generated": b"123"}, False),
        ({"n": 2}, False),
        ({"allowed_token_ids": [100]}, False),
        ({"bad_token_ids": [[1, -1]]}, False),
        ({"logit_bias": {100: 1.0}}, False),
        ({"logprob_token_ids": [-5]}, False),
    ],
    ids=repr,
)
def test_tokens_of_a_request_that_no_model_of_this_vocabulary_has(fields, sound):
    assert possible(adding(**fields), 100) == sound


def test_the_log_is_not_flooded(caplog):
    inbound = Inbound(ToEngine)
    for _ in range(1000):
        inbound.read(b"")
    assert len(caplog.records) == 10 and inbound.dropped == 1000


def test_both_sides_are_counted():
    inbound = Inbound(FromEngine)
    said = msgspec.msgpack.encode(Outputs(stats=Stats(dropped_messages=3)))
    assert read_from_engine(inbound, said).stats.dropped_messages == 3
    assert read_from_engine(inbound, b"") is None
    assert read_from_engine(inbound, said).stats.dropped_messages == 4
