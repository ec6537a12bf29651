"""Decoders of Llama's kind."""

from __future__ import annotations

import core_plugin_decoder as decoder

from core_plugin_llama.config import read


class CausalLM(decoder.CausalLM):
    """A decoder with its output projection, or the head that its checkpoint has instead."""

    describe = staticmethod(read)
