from core.api import DimRule, KernelSpec

COMMON = {"api": 1, "devices": {"cpu"}, "dtypes": {"float32"}, "band": 3}
NORM = KernelSpec(
    name="counted_norm",
    impl="seam_kernels.kernels:rms_norm",
    op="rms_norm",
    summary="Counts its calls",
    dims={"size": DimRule(least=32, most=128, multiple_of=8)},
    **COMMON,
)
SILU = KernelSpec(
    name="counted_silu", impl="seam_kernels.kernels:silu_and_mul", op="silu_and_mul", summary="Counts", **COMMON
)
WIDE = KernelSpec(
    name="wide_norm",
    impl="seam_kernels.missing:rms_norm",
    op="rms_norm",
    summary="Best, but for large sizes only",
    dims={"size": DimRule(least=4096)},
    priority=99,
    **COMMON,
)
TENSOR = KernelSpec(
    name="tensor_norm",
    impl="seam_kernels.missing:rms_norm",
    op="rms_norm",
    summary="Needs a unit that is not there",
    needs={"tensor_unit"},
    **COMMON,
)
