from core.api import KernelSpec

COMMON = {"api": 1, "op": "silu_and_mul", "devices": {"cpu"}, "dtypes": {"float32"}, "band": 3}
SILU = KernelSpec(
    name="native_silu", impl="seam_native.kernels:silu_and_mul", summary="From a library of its own", **COMMON
)
UNSLOTTED = KernelSpec(
    name="unslotted_silu", impl="seam_native.kernels:unslotted", summary="Forgets that rows are tokens", **COMMON
)
