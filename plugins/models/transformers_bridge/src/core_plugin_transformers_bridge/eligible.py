"""Which architectures can be bridged, as far as that can be told without a configuration. Torch-free."""

from __future__ import annotations

import re

from core.api.verdict import Verdict
from core_plugin_transformers_bridge.sources import Source, causal, installed, source_of

_STATES = ("nn.Conv1d(", "causal_conv1d", "update_conv_state", "update_recurrent_state", "nn.LSTM(", "nn.GRU(")
"""Source text of layers that mix the tokens of a request by something else than attention."""

_DECIDES = re.compile(r"(?<!>>> )(?:config|self)\.is_decoder")
"""Where a class goes by `is_decoder`; examples in its documentation do not count."""


def eligible(architecture: str) -> Verdict:
    """Say whether an architecture can be bridged, with every reason why not.

    A configuration may ask for more than this knows of: `shape` has the last word on it.
    """
    if architecture not in causal():
        known = "no causal language model" if source_of(architecture) else "no class"
        return Verdict.of(f"{architecture} is {known} of {installed()}")
    source = source_of(architecture)
    if source is None or architecture.endswith("ForConditionalGeneration"):
        return Verdict.of(f"{architecture} takes more than text")
    return Verdict.of(*_reasons(source))


def _reasons(source: Source) -> list[str | None]:
    replaceable = source.attribute("_supports_attention_backend") is True
    stateful = source.attribute("_is_stateful") is True or any(text in source.text for text in _STATES)
    optional = source.defaults().get("is_decoder") is False and _DECIDES.search(source.text) is not None
    return [
        None if replaceable else "its own attention cannot be replaced (no _supports_attention_backend)",
        "it has layers with a recurrent state or a convolution over tokens" if stateful else None,
        "it is an encoder that may be made a decoder (is_decoder)" if optional else None,
        None if "position_ids" in source.arguments() else "its forward pass takes no position_ids",
        "its experts are stored one by one and computed with as one tensor"
        if "use_experts_implementation" in source.text
        else None,
    ]
