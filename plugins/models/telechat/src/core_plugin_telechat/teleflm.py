"""Tele-FLM: Llama's decoder with muP's factors on the embedding and on the logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import CausalLM, Decoder, Fields, shape_of

from core_plugin_telechat.llama import llama


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "TeleFLMForCausalLM")
    decoder = llama(given)
    if not given.flag("use_mup"):
        return decoder
    wide = given.number("mup_scale_factor", 1.0, least=1e-6)
    return replace(
        decoder,
        embed_scale=given.number("input_mult", 1.0),
        logit_scale=given.number("output_mult", 1.0) / wide,
    )


shape = shape_of(read)


class TeleFLM(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
