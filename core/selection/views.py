"""Views of a resolution for plugins that propose changes to it, or judge it."""

from __future__ import annotations

from typing import Any

from core.config.fields import without_secrets
from core.config.resolved import Options
from core.plugins.kinds import KERNEL, STRUCTURED_OUTPUT, every_kind, kind_of
from core.selection.foundation import Derived, Foundation, drivers_of


def options_view(options: Options, base: Foundation, derived: Derived) -> dict[str, dict[str, Any]]:
    """Return the options as nested plain values, with what core decided in place of `auto`."""
    view = without_secrets(options)
    view["kv"]["hash_seed"] = None if options.kv.hash_seed is None else "(secret)"
    view["model"].update(dtype=derived.dtype, max_model_len=derived.max_model_len)
    view["kv"].update(kv_dtype=derived.kv_dtype, block_size=derived.block_size)
    view["scheduler"].update(max_num_batched_tokens=derived.step_tokens)
    named = [one for one in drivers_of(base, derived) if one.entry.group != KERNEL.group]
    names: dict[str, Any] = {kind.option: one.entry.name for one in named if (kind := kind_of(one.entry.group)).option}
    for kind in (one for one in every_kind().values() if one.many and one is not KERNEL):
        names[kind.option] = [one.entry.name for one in named if one.entry.group == kind.group]
    grammars = [one.entry.name for one in named if one.entry.group == STRUCTURED_OUTPUT.group]
    if grammars:
        names[STRUCTURED_OUTPUT.option] = ",".join(grammars)
    view["select"].update(names)
    return view


def facts_view(base: Foundation) -> dict[str, Any]:
    """Return what is known of platform and model, as plain values."""
    return {
        "platform": base.platform.entry.name,
        "device": base.device,
        "capability": list(base.probe.capability),
        "probe": dict(base.probe.facts),
        "features": sorted(base.probe.features),
        "model": base.files.name,
        "architecture": base.checkpoint.architecture,
        "quantization": base.checkpoint.quantization,
        "shape": base.shape.model_dump(mode="json"),
    }
