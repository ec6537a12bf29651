"""What AutoRound says in a `quantization_config`, whatever packing its tensors have. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping

METHODS = frozenset({"auto-round", "intel/auto-round", "inc"})
"""Names of it: Intel Neural Compressor writes the same."""

USUAL = "auto_round:auto_gptq"
"""Packing of checkpoints that name none."""

FLOAT_BITS = 16
"""Layers of so many bits, or more, are plain."""


def packing_of(given: Mapping[str, object]) -> str:
    """Return the name of the packing; empty where another method wrote the checkpoint."""
    if given.get("quant_method") not in METHODS:
        return ""
    return str(given.get("packing_format") or USUAL)


def own_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Return what `extra_config` says by names, or expressions, of modules: settings, or False for plain ones."""
    found: dict[str, object] = {}
    extra = given.get("extra_config")
    for name, own in extra.items() if isinstance(extra, Mapping) else ():
        bits = own.get("bits", given.get("bits", 4)) if isinstance(own, Mapping) else None
        found[str(name)] = False if type(bits) is int and bits >= FLOAT_BITS else own
    return found


def inside_blocks(given: Mapping[str, object], module: str) -> bool:
    """Whether a module is in one of the blocks that were quantized: all are, where none are named."""
    blocks = given.get("block_name_to_quantize")
    names = blocks.split(",") if isinstance(blocks, str) else blocks
    if not packing_of(given) or not isinstance(names, list | tuple) or not names:
        return True
    return any(f"{module}.".startswith(f"{str(name).strip()}.") for name in names)
