"""The plugin: attention layers are kept out of what is compiled, the rest is compiled once its weights are in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.hooks import hookimpl

__core_options__ = "core_plugin_torch_compile.options:CompileOptions"

__core_presets__ = {"compile": {"backend": "inductor", "measure": 3}}
"""`--compile`. So many steps are those of the short run at the start: what compiling saves is known when it is over."""

OFF = "off"


@hookimpl
def core_layer(site: Any, layer: Any, options: Mapping[str, Any]) -> Any:
    """Return an attention layer that torch.compile does not look into; None where nothing is to be compiled."""
    if options.get("backend", OFF) == OFF or not hasattr(site, "layer"):
        return None
    from core_plugin_torch_compile.opaque import opaque

    return opaque(layer, site)


@hookimpl
def core_model_loaded(model: Any, info: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Have the model's `forward` compiled, once: new weights are read by what was compiled before."""
    if options.get("backend", OFF) == OFF:
        return
    from core_plugin_torch_compile.forward import CompiledForward
    from core_plugin_torch_compile.options import CompileOptions

    if not isinstance(getattr(model, "forward", None), CompiledForward):
        model.forward = CompiledForward(model, info, CompileOptions.model_validate(dict(options)))
