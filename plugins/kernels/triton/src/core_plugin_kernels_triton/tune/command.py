"""The command: finds the card and the model's sizes, times, and writes the user's table. Torch-free to import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from core.api import ConfigError

if TYPE_CHECKING:
    import argparse

    import torch

    from core_plugin_kernels_triton.tune.cases import Sizes
    from core_plugin_kernels_triton.tune.search import Finding

NO_DEVICE = 1
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
        parser.add_argument("--dry-run", action="store_true", help="Print what was found, and write nothing.")

    def run(self, args: argparse.Namespace) -> int:
        """Time, print and write."""
        device = device_here()
        if device is None:
            print("core bench tune: no GPU of CUDA, ROCm or XPU is here, so nothing was timed or written.")
            return NO_DEVICE
        from core_plugin_kernels_triton.tables import sections, user_path
        from core_plugin_kernels_triton.tune.cases import cases
        from core_plugin_kernels_triton.tune.search import search
        from core_plugin_kernels_triton.tune.store import keep
        from core_plugin_kernels_triton.tune.timing import milliseconds

        found = search(device, cases(sizes_of(args.model, args.dtype, args.rows), device), milliseconds, print)
        section, better = sections(device)[-1], [one for one in found if one.better]
        for one in found:
            print(_told(one))
        if better and not args.dry_run:
            keep("ops", section, {one.kernel: one.best for one in better})
            print(f"wrote {len(better)} of {len(found)} kernels of {section} to {user_path('ops')}")
        return 0


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
        )
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        text = f"core bench tune: the sizes of {model or rows} cannot be read: {error}."
        raise ConfigError("CORE-C104", text, hint="--model is a folder with a config.json, --rows is 1,64.") from error


def _told(one: Finding) -> str:
    sizes = ", ".join(f"{key} {value}" for key, value in one.best.items())
    change = f"{one.ratio:.2f} times as fast as the table's" if one.better else "the table's are as good"
    return f"{one.kernel}: {sizes} ({change}; {one.tried} sizes, {one.failed} of them do not run)"
