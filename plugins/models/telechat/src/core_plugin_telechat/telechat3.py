"""TeleChat 3: Llama's decoder, whose YaRN stretches queries and keys less."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import CausalLM, Decoder, Fields, shape_of

from core.api import config_number, config_object
from core_plugin_telechat.llama import llama

_RULE, _SLOPE = "telechat3-yarn", 0.07
"""Its name, and the factor of the logarithm, where YaRN has 0.1."""

_PLACES = ("rope_scaling", "rope_parameters")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    replaced = {key: _usual(config_object(config, key)) for key in _PLACES if config.get(key) is not None}
    return llama(Fields({**config, **replaced}, "TeleChat3ForCausalLM"))


def _usual(scaling: Mapping[str, Any]) -> dict[str, Any]:
    """Return YaRN's parameters, with the stretch of TeleChat's own rule where they have none."""
    if scaling.get("rope_type", scaling.get("type")) != _RULE:
        return dict(scaling)
    found = {key: value for key, value in scaling.items() if key != "type"} | {"rope_type": "yarn"}
    if found.get("attention_factor") is None:
        found["attention_factor"] = _stretch(scaling)
    return found


def _stretch(scaling: Mapping[str, Any]) -> float:
    """Return the factor of cosines and sines."""
    grown = max(math.log(config_number(scaling, "factor", 1.0, least=1e-6, most=1e6)), 0.0)
    of, over = (config_number(scaling, key, 0.0, most=1e3) for key in ("mscale", "mscale_all_dim"))
    return (1 + _SLOPE * of * grown) / (1 + _SLOPE * over * grown) if of and over else 1 + _SLOPE * grown


shape = shape_of(read)


class TeleChat3(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
