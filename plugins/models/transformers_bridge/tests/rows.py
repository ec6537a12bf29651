"""Tiny checkpoints that the bridge is asked to run."""

from __future__ import annotations

from core_testing.families import TinyFamily

_BRIDGED = {"model_impl": "transformers-bridge", "programs": False}

ROWS = [
    TinyFamily(
        "bridged_helium",
        "HeliumForCausalLM",
        {"model_type": "helium", "head_dim": 20},
        native={"hidden_size": 128, "head_dim": 32},
        **_BRIDGED,
    ),
    TinyFamily("bridged_jais2", "Jais2ForCausalLM", {"model_type": "jais2"}, **_BRIDGED),
    TinyFamily("bridged_nanochat", "NanoChatForCausalLM", {"model_type": "nanochat"}, **_BRIDGED),
]
