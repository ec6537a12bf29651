"""AutoRound's settings in a `quantization_config`, whatever packing its tensors have. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping

METHODS = frozenset({"auto-round", "intel/auto-round", "inc"})
"""Names of it: Intel Neural Compressor writes the same."""

INTEGERS = "auto_round:auto_gptq"
RUNS = "auto_round:llm_compressor"
FLOAT8 = "auto_round:fp8"
"""Packings of checkpoints that name none, by their kind of numbers: integers, floats in runs, and plain float8."""

FLOAT_BITS = 16
"""Layers of so many bits, or more, are plain."""


def packing_of(given: Mapping[str, object]) -> str:
    """Return the name of the packing; empty where another method wrote the checkpoint."""
    if given.get("quant_method") not in METHODS:
        return ""
    if named := given.get("packing_format"):
        return str(named)
    kind = data_type(given)
    if in_runs(kind):
        return RUNS
    return FLOAT8 if kind.startswith("fp") else INTEGERS


def data_type(given: Mapping[str, object]) -> str:
    """Return the kind of numbers of weights: `int`, `fp`, `mx_fp`, `nv_fp`, each perhaps with more behind it."""
    return str(given.get("data_type") or "int").lower()


def in_runs(kind: str) -> bool:
    """Whether such numbers have a scale of a type of their own for each run of inputs."""
    return "mx_fp" in kind or "nv_fp" in kind


def own_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Return what `extra_config` says by names, or expressions, of modules: settings, or False for plain ones."""
    found: dict[str, object] = {}
    extra = given.get("extra_config")
    for name, own in extra.items() if isinstance(extra, Mapping) else ():
        bits = own.get("bits", given.get("bits", 4)) if isinstance(own, Mapping) else None
        found[str(name)] = False if type(bits) is int and bits >= FLOAT_BITS else own
    return found


def blocks_of(given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the paths of the blocks that were quantized; empty: all are."""
    blocks = given.get("block_name_to_quantize")
    names = blocks.split(",") if isinstance(blocks, str) else blocks
    if not packing_of(given) or not isinstance(names, list | tuple):
        return ()
    return tuple(str(name).strip() for name in names)


def inside_blocks(given: Mapping[str, object], module: str) -> bool:
    """Whether a module is in one of the blocks that were quantized: all are, where none are named."""
    blocks = blocks_of(given)
    return not blocks or any(f"{module}.".startswith(f"{name}.") for name in blocks)
