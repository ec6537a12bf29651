"""The command: finds the card and the model's sizes, times, and writes the user's table. Torch-free to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.config.flags import add_option_flags
from core.config.load import load_options

if TYPE_CHECKING:
    import argparse

    import torch

    from core_plugin_kernels_triton.tune.cases import Sizes
    from core_plugin_kernels_triton.tune.search import Finding

NO_DEVICE = 1


class BenchTune:
    """`core bench tune`."""

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        group = parser.add_argument_group("benchmark")
        group.add_argument(
            "--rows", default="1,64,2048", metavar="N,N", help="Tokens of the steps to time (default: 1,64,2048)."
        )
        group.add_argument("--dry-run", action="store_true", help="Print what was found, and write nothing.")
        add_option_flags(parser)  # type: ignore[arg-type]

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

        found = search(device, cases(_sizes(args), device), milliseconds, print)
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


def _sizes(args: argparse.Namespace) -> Sizes:
    from core.boot import resolve
    from core_plugin_kernels_triton.tune.cases import Sizes

    config = resolve(load_options(args).options).config
    hub: dict[str, Any] = config.checkpoint.config
    return Sizes(
        rows=tuple(int(text) for text in args.rows.split(",")),
        hidden=config.shape.hidden_size,
        intermediate=int(hub.get("intermediate_size") or 4 * config.shape.hidden_size),
        heads=config.shape.num_heads,
        kv_heads=config.shape.num_kv_heads,
        head_dim=config.shape.head_dim,
        vocabulary=config.shape.vocab_size,
        dtype=config.dtype,
    )


def _told(one: Finding) -> str:
    sizes = ", ".join(f"{key} {value}" for key, value in one.best.items())
    change = f"{one.ratio:.2f} times as fast as the table's" if one.better else "the table's are as good"
    return f"{one.kernel}: {sizes} ({change}; {one.tried} sizes, {one.failed} of them do not run)"
