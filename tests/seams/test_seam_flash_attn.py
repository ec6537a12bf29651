"""FlashAttention 2 and 3: a stand-in of the library that refuses what its documentation does not allow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from core_plugin_flash_attn.fits import version2, version3
from core_plugin_flash_attn.manifest import FLASH_ATTN, FLASH_ATTN_3

from core.api.attention import BatchView
from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult
from tests.seams.libraries import flash_attn
from tests.seams.libraries.engines import same_tokens
from tests.seams.libraries.steps import ROWS, context, run, same_as_reference, site_of, step_of

INSTALL = {2: flash_attn.version2, 3: flash_attn.version3}
NAMES = {2: "seam_flash_attn", 3: "seam_flash_attn_3"}


@pytest.fixture(params=[2, 3])
def number(request):
    return request.param


@pytest.fixture
def calls(monkeypatch, number):
    """The stand-in, and none of the plugin's modules that was imported with another one."""
    own = f"core_plugin_flash_attn.version{number}"
    monkeypatch.delitem(sys.modules, own, raising=False)
    made = INSTALL[number](monkeypatch, **({"page": 16} if number == 2 else {}))
    yield made
    sys.modules.pop(own, None)


def backend_class(number):
    from importlib import import_module

    return getattr(import_module(f"core_plugin_flash_attn.version{number}"), f"FlashAttention{number}")


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("extra", [{}, {"window": 5}, {"softcap": 3.0}, {"window": 16, "softcap": 2.0}], ids=str)
def test_steps_are_those_of_the_reference_and_nothing_strange_is_read(calls, number, rows, extra):
    same_as_reference(backend_class(number)(context(16)), site_of(**extra), ROWS[rows], 16)


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_slopes_and_chunks(calls, number, rows):
    own = {2: {"slopes": tuple(0.5**i for i in range(6))}, 3: {"chunk": 12}}
    same_as_reference(backend_class(number)(context(16)), site_of(**own[number]), ROWS[rows], 16)


def test_a_plan_for_graphs(calls, number):
    same_as_reference(backend_class(number)(context(16)), site_of(), ROWS["tokens"], 16, fixed=True)


def test_splits_are_the_users(calls, number):
    backend = backend_class(number)(context(16, options={"splits": 1}))
    step = step_of(ROWS["tokens"], site_of(), 16)
    run(backend, site_of(), step, step.poisoned)
    assert calls == {2: ["kvcache 1"], 3: [1]}[number]


def test_prompts_without_a_cache(calls, number):
    """Each token sees the others of its prompt, within half a window."""
    from core_plugin_torch_sdpa.backend import TorchSdpaBackend

    site, step = site_of(window=7), step_of([(0, 9), (0, 4)], site_of(), 16)
    found = []
    for backend in (backend_class(number)(context(16)), TorchSdpaBackend(context(16))):
        found.append(backend.encoder(site).forward(step.q, step.k, step.v, backend.plan(step.batch)))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


def test_two_groups_of_layers_have_plans_of_their_own(calls, number):
    step = step_of(ROWS["pieces"], site_of(), 16)
    backend = backend_class(number)(context(16))
    other = {name: getattr(step.batch, name) for name in step.batch.__slots__} | {"slots": step.batch.slots + 16}
    one, two = backend.plan(step.batch), backend.plan(BatchView(**other))
    # A block later is two halves of a block later.
    assert torch.equal(two.key_slots - one.key_slots, torch.full_like(one.key_slots, 32))


@pytest.mark.covers("ATTN-05")
def test_a_tiny_llama_s_tokens_are_those_of_the_reference(plugins, calls, number, llama):
    plugins("fake_device", "libraries")
    platform = same_tokens(llama, NAMES[number])
    assert platform.graphs.replayed and platform.queue().waits == 0 and calls


@pytest.mark.exhaustive
def test_windows(plugins, calls, number, windowed):
    plugins("fake_device", "libraries")
    assert same_tokens(windowed, NAMES[number]).graphs.replayed


# -- where it is not --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fits", "capability", "arch", "why"),
    [
        (version2, (7, 5), "", "8.0 or more, the card has 7.5"),
        (version2, (8, 0), "", None),
        (version2, (12, 0), "", None),
        (version2, (), "gfx942", "not for gfx942"),
        (version3, (8, 9), "", "capability 9.0, the card has 8.9"),
        (version3, (9, 0), "", None),
        (version3, (10, 0), "", "capability 9.0, the card has 10.0"),
    ],
)
def test_cards(fits, capability, arch, why):
    shape = {"head_dim": 64, "num_heads": 4, "num_kv_heads": 2, "block_size": 256}
    request = AttentionRequest(device_type="cuda", dtype="bfloat16", kv_dtype="bfloat16", **shape)
    verdict = fits(request, ProbeResult(available=True, capability=capability, facts={"arch": arch} if arch else {}))
    assert verdict.ok == (why is None) and (why is None or why in verdict.reasons[0])


def test_version_2_has_pages_of_256_tokens():
    shape = {"device_type": "cuda", "dtype": "bfloat16", "kv_dtype": "bfloat16", "head_dim": 64, "num_heads": 4}
    small = AttentionRequest(**shape, num_kv_heads=2, block_size=16)
    assert small.check(FLASH_ATTN).reasons == ("block size 16 is not a multiple of 256",)
    assert small.check(FLASH_ATTN_3).ok and small.replace(block_size=256).check(FLASH_ATTN).ok


def _why(name):
    from core.plugins.drivers import load_descriptors
    from core.plugins.entry import Entry

    value = f"core_plugin_flash_attn.manifest:{name.upper()}"
    candidates, failures = load_descriptors(
        [Entry("core.attention_backends", name, "core-plugin-flash-attn", "0.1.0", value)]
    )
    return candidates, failures


@pytest.mark.parametrize(("name", "library"), [("flash_attn", "flash_attn"), ("flash_attn_3", "flash_attn_interface")])
def test_an_absent_or_old_library_is_a_reason(monkeypatch, tmp_path, name, library):
    candidates, (absent,) = _why(name)
    assert not candidates and absent.code == "CORE-P111" and library in absent.reason
    flash_attn.module(monkeypatch, library)
    dist = {"flash_attn": "flash_attn", "flash_attn_3": "flash_attn_3"}[name]
    info = Path(tmp_path) / f"{dist}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    candidates, (old,) = _why(name)
    assert not candidates and old.code == "CORE-P105" and "1.0 is installed" in old.reason
