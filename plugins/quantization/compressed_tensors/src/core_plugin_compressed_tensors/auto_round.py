"""AutoRound's floats in runs, whose tensors are those of this format, described as its groups of layers. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from core_plugin_unquantized.auto_round import RUNS, blocks_of, data_type, own_settings, packing_of

from core_plugin_compressed_tensors.schemes import mapping

PACKINGS = (RUNS, "auto_round:mx_fp", "auto_round:mx_fp_rceil", "auto_round:nv_fp", "auto_round:nv_fp4_with_static_gs")
"""Those that are read; the others are names of the same in earlier versions."""

_KIND = re.compile(r"(mx|nv)_fp(?:4(?:e2m1)?|8(?:e4m3)?)?(?:_rceil|_with_static_gs)?")
_LAYOUTS = {("mx", 4): "mxfp4-pack-quantized", ("mx", 8): "mxfp8-quantized", ("nv", 4): "nvfp4-pack-quantized"}
_STRATEGIES = {"mx": "group", "nv": "tensor_group"}


def translated(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return what AutoRound says of a checkpoint in the words of this format; what others say as it is."""
    if not packing_of(given):
        return given
    groups: dict[str, Any] = {}
    ignored: list[str] = []
    for name, own in own_settings(given).items():
        target = f"re:(?:{name})$"
        if own is False:
            ignored.append(target)
        else:
            groups[name] = _group({**given, **mapping(own)}, target)
    if not any(name.endswith("lm_head") for name in groups):
        ignored.append("re:(?:.*\\.)?lm_head$")
    blocks = blocks_of(given)
    targets = [f"re:{re.escape(name)}\\." for name in blocks] or ["Linear"]
    groups["all layers" if not blocks else ", ".join(blocks)] = _group(given, *targets)
    return {"config_groups": groups, "ignore": ignored}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return what AutoRound says of a checkpoint that has no words in this format."""
    packing = packing_of(given)
    if not packing:
        return []
    reasons = [] if packing in PACKINGS else [f"packing_format {packing!r:.60}, not {PACKINGS[0]!r}"]
    if given.get("rotation_config"):
        reasons.append("inputs are transformed (rotation_config)")
    for name, own in _settings(given):
        where = f"{name}: " if name else ""
        kind, bits = data_type(own), own.get("bits")
        if _layout(own) is None:
            reasons.append(f"{where}weights of {bits!r:.60} bits of {kind!r:.60}, not 4 or 8 of 'mx_fp', 4 of 'nv_fp'")
        if own.get("sym") not in (None, True):
            reasons.append(f"{where}weights with sym {own['sym']!r:.60}")
    return reasons


def _settings(given: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the settings by name of a module, or an expression; those of all others without a name."""
    yield "", given
    for name, own in own_settings(given).items():
        if own is not False:
            yield name, {**given, **mapping(own)}


def _group(given: Mapping[str, object], *targets: str) -> dict[str, Any]:
    family = _family(data_type(given))
    numbers = {"type": "float", "strategy": _STRATEGIES.get(family)}
    size = given.get("group_size")
    weights = {**numbers, "num_bits": given.get("bits"), "group_size": size}
    bits = given.get("act_bits") or 16
    activations = None
    if type(bits) is not int or bits < 16:
        kind = data_type({"data_type": given.get("act_data_type") or data_type(given)})
        activations = {
            **(numbers if _family(kind) == family else {"type": kind}),
            "num_bits": bits,
            "group_size": given.get("act_group_size") or size,
            "symmetric": given.get("act_sym"),
            "dynamic": True if given.get("act_dynamic") is None else given["act_dynamic"],
        }
    return {"targets": list(targets), "format": _layout(given), "weights": weights, "input_activations": activations}


def _family(kind: str) -> str:
    found = _KIND.fullmatch(kind)
    return "" if found is None else found[1]


def _layout(given: Mapping[str, object]) -> str | None:
    bits = given.get("bits")
    return _LAYOUTS.get((_family(data_type(given)), bits)) if type(bits) is int else None
