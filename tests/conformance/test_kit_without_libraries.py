"""On a machine with a card, a plugin whose library is not there is left out by name, and does not fail."""

from __future__ import annotations

from core_testing.conformance import Level, kit
from core_testing.conformance.subject import Shared


def on_a_card(selector, monkeypatch):
    """The jobs of a plugin where a card of type `cuda` is."""
    monkeypatch.setattr(kit, "_accelerators_here", lambda catalogue: {"cuda": "a card"})
    (subject,) = kit.subjects(selector, Shared())
    return {job.name: job for job in kit.jobs(subject, Level.L2)}


def test_what_lacks_its_library_is_not_run_on_the_card(monkeypatch):
    found = on_a_card("attention_backends:flash_attn", monkeypatch)
    assert not [name for name in found if name.endswith("@cuda")]
    outcome = found["a_declared_accelerator_is_here"].run()
    assert (outcome.status, outcome.message) == (
        "unavailable",
        "it needs the module flash_attn, which is not installed",
    )


def test_what_needs_none_is_run_there(monkeypatch):
    found = on_a_card("attention_backends:torch_sdpa", monkeypatch)
    assert "decode_matches_reference@cuda" in found and "a_declared_accelerator_is_here" not in found
