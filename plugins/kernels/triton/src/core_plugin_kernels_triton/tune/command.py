"""The command: finds the card and the model's sizes, times, and writes the user's table. Torch-free to import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    import torch

    from core_plugin_kernels_triton.tune.cases import Sizes
    from core_plugin_kernels_triton.tune.search import Finding

NO_DEVICE = 1
PARTS = ("ops", "products", "experts", "attention")
"""Tables that are tuned; `tune.parts` has what belongs to each."""
DTYPES = ("bfloat16", "float16", "float32")
LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": None,
    "vocab_size": 128256,
}
"""Sizes of Llama 3.1 8B."""


class BenchTune:
    """`core bench tune`."""

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.add_argument(
            "--model", metavar="FOLDER", help="Folder with the config.json of a model (default: sizes of Llama 3.1 8B)."
        )
        parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="Compute dtype (default: bfloat16).")
        parser.add_argument(
            "--rows", default="1,64,2048", metavar="N,N", help="Tokens of the steps to time (default: 1,64,2048)."
        )
        parser.add_argument(
            "--parts", default=",".join(PARTS), metavar="PART,PART", help="Tables to tune (default: all of them)."
        )
        parser.add_argument("--dry-run", action="store_true", help="Print what was found, and write nothing.")

    def run(self, args: argparse.Namespace) -> int:
        """Time, print and write."""
        device = device_here()
        if device is None:
            print("core bench tune: no GPU of CUDA, ROCm or XPU is here, so nothing was timed or written.")
            return NO_DEVICE
        sizes = sizes_of(args.model, args.dtype, args.rows)
        for name in parts_of(args.parts):
            _tune(name, sizes, device, keeps=not args.dry_run)
        return 0


def _tune(name: str, sizes: Sizes, device: torch.device, *, keeps: bool) -> None:
    """Time, print and write one table."""
    from core_plugin_kernels_triton.tables import sections, user_path
    from core_plugin_kernels_triton.tune import parts, timing
    from core_plugin_kernels_triton.tune.search import search
    from core_plugin_kernels_triton.tune.store import keep

    part = parts.PARTS[name]
    cases = part.cases(sizes, device)
    if not cases:
        print(f"{name}: the model has none, so nothing was timed.")
        return
    found = search(part, device, cases, timing.milliseconds, print)
    section, better = sections(device)[-1], [one for one in found if one.better]
    for one in found:
        print(_told(one))
    if better and keeps:
        keep(name, section, {one.kernel: one.best for one in better})
        print(f"wrote {len(better)} of {len(found)} kernels of {section} to {user_path(name)}")


def parts_of(text: str) -> list[str]:
    """Return the tables of a flag. Raises `ConfigError` CORE-C104 for one that there is not."""
    found = text.split(",")
    for name in found:
        if name not in PARTS:
            text = f"core bench tune: --parts names '{name}', and there is no such table."
            raise ConfigError("CORE-C104", text, hint=f"Tables: {', '.join(PARTS)}.")
    return found


def device_here() -> torch.device | None:
    """Return the GPU that kernels would run on; None where there is none."""
    import torch

    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return torch.device(kind, 0)
    return None


def sizes_of(model: str | None, dtype: str, rows: str) -> Sizes:
    """Return what is timed. Raises `ConfigError` CORE-C104 for a model or a number that is none."""
    from core_plugin_kernels_triton.tune.cases import Sizes

    try:
        steps = tuple(int(text) for text in rows.split(","))
        given = LLAMA if model is None else json.loads((Path(model) / "config.json").read_text())
        config = given.get("text_config", given)
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Sizes(
            rows=steps,
            hidden=hidden,
            intermediate=int(config.get("intermediate_size") or 4 * hidden),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            dtype=dtype,
            latent=bool(config.get("kv_lora_rank")),
            **_experts_of(config),
        )
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        text = f"core bench tune: the sizes of {model or rows} cannot be read: {error}."
        raise ConfigError("CORE-C104", text, hint="--model is a folder with a config.json, --rows is 1,64.") from error


def _experts_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a configuration's experts; none, if it has none."""
    counts = (config.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts"))
    experts = next((int(count) for count in counts if count), 0)
    if not experts:
        return {}
    size = int(config.get("moe_intermediate_size") or config["intermediate_size"])
    return {"experts": experts, "top_k": int(config["num_experts_per_tok"]), "expert_size": size}


def _told(one: Finding) -> str:
    sizes = ", ".join(f"{key} {value}" for key, value in one.best.items())
    change = f"{one.ratio:.2f} times as fast as the table's" if one.better else "the table's are as good"
    return f"{one.kernel}: {sizes} ({change}; {one.tried} sizes, {one.failed} of them do not run)"
