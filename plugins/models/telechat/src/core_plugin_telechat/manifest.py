"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

TELECHAT = ModelSpec(
    name="telechat",
    impl="core_plugin_telechat.telechat:TeleChat",
    api=2,
    summary="TeleChat 1 and 2 dense decoders",
    architectures=(
        "TeleChatForCausalLM",
        "TelechatForCausalLM",
        "TeleChat2ForCausalLM",
    ),
    shape="core_plugin_telechat.telechat:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

TELECHAT3 = ModelSpec(
    name="telechat3",
    impl="core_plugin_telechat.telechat3:TeleChat3",
    api=2,
    summary="TeleChat 3 dense decoders",
    architectures=("TeleChat3ForCausalLM",),
    shape="core_plugin_telechat.telechat3:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)

TELEFLM = ModelSpec(
    name="teleflm",
    impl="core_plugin_telechat.teleflm:TeleFLM",
    api=2,
    summary="Tele-FLM dense decoders",
    architectures=("TeleFLMForCausalLM",),
    shape="core_plugin_telechat.teleflm:shape",
    chat_templates="core_plugin_decoder.chat:Templates",
)
