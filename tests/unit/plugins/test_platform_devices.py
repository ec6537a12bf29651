"""One of several devices of a platform: how it is named, and what its probe says of it."""

from __future__ import annotations

import pytest

from core.api import ProbeResult
from core.config.resolved import Options
from core.selection.platforms import _verdict, read_ask

FIRST = ProbeResult(available=True, reason="first", capability=(8, 0))
SECOND = ProbeResult(available=False, reason="second is too old")
BOTH = FIRST.model_copy(update={"devices": (FIRST, SECOND)})


@pytest.mark.parametrize(
    ("ask", "names", "indices"),
    [
        (None, None, {}),
        ("auto", "auto", {}),
        ("npu", "npu", {}),
        ("npu:1", "npu", {"npu": 1}),
        ("npu:1@acme-core-npu", "npu@acme-core-npu", {"npu": 1}),
        ("npu@acme-core-npu", "npu@acme-core-npu", {}),
        ("NPU:3, host", "NPU,host", {"npu": 3}),
        ("my_npu:2,my-npu:5", "my_npu,my-npu", {"my-npu": 2}),
        ("npu:x", "npu:x", {}),  # no platform has such a name, which the error says
        ("npu:-1", "npu:-1", {}),
    ],
)
def test_a_platform_may_be_named_with_the_index_of_a_device(ask, names, indices):
    assert read_ask(ask) == (names, indices)


@pytest.mark.parametrize(
    ("probe", "index", "reasons"),
    [
        (FIRST, 0, ()),
        (FIRST, 1, ("device 1 was asked for, and it finds one device, 0",)),
        (BOTH, 0, ()),
        (BOTH, 1, ("second is too old",)),
        (BOTH, 2, ("device 2 was asked for, and it finds 2 devices, 0 to 1",)),
        (SECOND, 0, ("second is too old",)),
        (SECOND, 1, ("second is too old",)),
        (ProbeResult(available=False), 0, ("not available",)),
        (SECOND.model_copy(update={"devices": (SECOND, FIRST)}), 1, ()),
    ],
)
def test_each_device_is_judged_by_what_was_found_of_it(probe, index, reasons):
    assert _verdict(probe, index).reasons == reasons


def test_a_finding_with_devices_survives_json():
    assert ProbeResult.model_validate_json(BOTH.model_dump_json()) == BOTH
    assert BOTH.of(0).capability == (8, 0) and BOTH.count == 2


def test_a_platforms_fraction_holds_where_the_user_set_none():
    assert Options().with_memory_fraction(None).kv.memory_fraction == 0.5
    preferred = Options().with_memory_fraction(0.9)
    assert preferred.kv.memory_fraction == 0.9 and "memory_fraction" not in preferred.kv.model_fields_set
    given = Options.model_validate({"kv": {"memory_fraction": 0.3}})
    assert given.with_memory_fraction(0.9).kv.memory_fraction == 0.3
