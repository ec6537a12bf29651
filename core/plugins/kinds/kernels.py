"""The kind `core.kernels`: faster forms of operations."""

from __future__ import annotations

from core.api.kinds import Kind

KERNEL = Kind(
    group="core.kernels",
    label="kernel",
    summary="faster forms of operations",
    descriptor="core.api.descriptors:KernelSpec",
    option="kernel",
    help="Kernels to use: OP=NAME[,NAME]; core chooses those of other operations.",
    many=True,
    calls={"refine": ("request", "probe")},
    names=("reference",),
    checks=("kernels", "products"),
)
