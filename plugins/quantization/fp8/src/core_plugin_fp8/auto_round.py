"""AutoRound's float8 weights, described as the method `fp8` describes its own. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from core_plugin_unquantized.auto_round import FLOAT8, data_type, own_settings, packing_of

PACKINGS = (FLOAT8, "auto_round:fp8_static")
_KIND = re.compile(r"fp(8(_e4m3(fn)?)?)?")

_SAME = ("bits", "group_size", "data_type", "sym", "act_bits", "act_group_size", "act_data_type", "act_dynamic")
"""Settings that all quantized layers share."""


def translated(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return what AutoRound says of a checkpoint in the words of the method `fp8`; what others say as it is.

    What that method has no words for: `by_outputs`, a scale for each output, and `activations`, 16 bits where they are
    not rounded.
    """
    if not packing_of(given):
        return given
    size, rounds = given.get("group_size"), _rounds(given)
    return {
        "activation_scheme": "static" if rounds and given.get("act_dynamic") is False else "dynamic",
        "weight_block_size": size if isinstance(size, list | tuple) else None,
        "fmt": given.get("fmt"),
        "by_outputs": size == -1,
        "activations": 8 if rounds else 16,
    }


def plain_layers(given: Mapping[str, object]) -> tuple[re.Pattern[str], ...]:
    """Return expressions of the modules that AutoRound says are plain."""
    plain = [name for name, own in _own(given).items() if own is False]
    return tuple(re.compile(f"(?:{name})$") for name in plain)


def takes_head(given: Mapping[str, object]) -> bool:
    """Whether the output projection is quantized: it is named then."""
    return any(name.endswith("lm_head") and own is not False for name, own in _own(given).items())


def reasons_against(given: Mapping[str, object]) -> Iterator[str]:
    """Yield everything that AutoRound says of a checkpoint and is not understood."""
    packing = packing_of(given)
    if not packing:
        return
    if packing not in PACKINGS:
        yield f"packing_format {packing!r:.60}, not {' or '.join(map(repr, PACKINGS))}"
    if not _KIND.fullmatch(data_type(given)) or given.get("bits", 8) != 8:
        yield f"weights of {given.get('bits')!r:.60} bits of {data_type(given)!r:.60}, not 8 of 'fp'"
    if given.get("sym") not in (None, True):
        yield f"weights with sym {given['sym']!r:.60}"
    if given.get("rotation_config"):
        yield "inputs are transformed (rotation_config)"
    size = given.get("group_size")
    if not isinstance(size, list | tuple) and (type(size) is not int or size not in (-1, 0)):
        yield f"group_size {size!r:.60}, not -1, 0 or two sizes"
    yield from _of_activations(given)
    for name, own in _own(given).items():
        yield from _of_layer(given, name, own)


def _own(given: Mapping[str, object]) -> dict[str, object]:
    return own_settings(given) if packing_of(given) else {}


def _of_activations(given: Mapping[str, object]) -> Iterator[str]:
    if not _rounds(given):
        return
    kind = data_type({"data_type": given.get("act_data_type") or "fp"})
    if not _KIND.fullmatch(kind) or given.get("act_bits") != 8 or given.get("act_sym") not in (None, True):
        yield f"activations of {given.get('act_bits')!r:.60} bits of {kind!r:.60}, not 8 of 'fp'"
    if given.get("act_dynamic") not in (None, True, False):
        yield f"act_dynamic {given['act_dynamic']!r:.60}"
    due = 0 if given.get("act_dynamic") is False else 128 if isinstance(given.get("group_size"), list | tuple) else -1
    if given.get("act_group_size") not in (None, due):
        yield f"act_group_size {given['act_group_size']!r:.60}, not {due}"


def _of_layer(given: Mapping[str, object], name: str, own: object) -> Iterator[str]:
    try:
        re.compile(name)
    except re.error as error:
        yield f"{name!r:.60} is no regular expression ({error})"
    for key, value in own.items() if isinstance(own, Mapping) else ():
        if key in _SAME and value not in (None, given.get(key)):
            yield f"{name}: {key} {value!r:.60}, not {given.get(key)!r:.60} as elsewhere"


def _rounds(given: Mapping[str, object]) -> bool:
    bits = given.get("act_bits") or 16
    return type(bits) is not int or bits < 16
