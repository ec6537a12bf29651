"""A model of transformers without weights, and the values that it computes from its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from core.api.errors import CheckpointError
from core_plugin_transformers_bridge.attend import NAME, register

if TYPE_CHECKING:
    from torch import Tensor

_DROPPED = ("quantization_config", "auto_map", "torch_dtype", "dtype")
"""Keys that core reads itself, and those that would run code of the checkpoint."""


def skeleton(config: Mapping[str, Any]) -> Any:
    """Return transformers' model of a configuration on the meta device, in evaluation mode, with core's attention."""
    import transformers

    register()
    kind = getattr(transformers, str(config["architectures"][0]))
    given = {key: value for key, value in config.items() if key not in _DROPPED}
    settings = kind.config_class.from_dict(given)
    settings._attn_implementation = NAME
    settings.use_cache = False
    with torch.device("meta"), torch.no_grad():
        return kind(settings).train(False)


def stored(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, tuple[int, ...]]]:
    """Yield name, module, attribute and shape of everything that a checkpoint of the model stores."""
    for path, module in model.named_modules():
        kept = {name: one for name, one in module._parameters.items() if one is not None}
        volatile = module._non_persistent_buffers_set
        kept |= {name: one for name, one in module._buffers.items() if one is not None and name not in volatile}
        for name, one in kept.items():
            yield f"{path}.{name}" if path else name, module, name, tuple(one.shape)


def volatile(model: Any) -> list[tuple[nn.Module, str, Tensor]]:
    """Return module, attribute and value, on the host, of what no checkpoint stores: rotary frequencies, mostly.

    Args:
        model: As `skeleton` gives it; it stays on the meta device.

    Raises:
        CheckpointError: CORE-M212, the model's class does not say how one of them is computed.
    """
    found = []
    for path, module in model.named_modules():
        kept = {name: module._buffers.get(name) for name in module._non_persistent_buffers_set}
        likes = {name: one for name, one in kept.items() if one is not None}
        if not likes:
            continue
        module._buffers |= {name: torch.full_like(one, _unset(one), device="cpu") for name, one in likes.items()}
        with torch.no_grad():
            model._init_weights(module)
        made = {name: module._buffers[name] for name in likes}
        module._buffers |= likes
        for name, value in made.items():
            if value.numel() and bool((value == _unset(value)).all()):
                raise CheckpointError("CORE-M212", f"nothing computes '{path}.{name}' of {type(model).__name__}.")
            found.append((module, name, value))
    return found


@contextmanager
def without(module: nn.Module, child: str, instead: nn.Module) -> Iterator[None]:
    """Let a module have another child for a while."""
    before = module._modules[child]
    module._modules[child] = instead
    try:
        yield
    finally:
        module._modules[child] = before


def _unset(like: Tensor) -> float:
    """Return a number that stands for none."""
    if like.is_floating_point():
        return torch.finfo(like.dtype).min
    return 0 if like.dtype is torch.bool else torch.iinfo(like.dtype).min
