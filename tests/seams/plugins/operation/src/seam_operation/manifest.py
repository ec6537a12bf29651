from core.api import DimRule, KernelSpec, ModelSpec

COMMON = {"api": 1, "devices": {"cpu"}, "dtypes": {"float32"}, "band": 3}
MIX = KernelSpec(
    name="quick_mix",
    impl="seam_operation.kernels:mix",
    op="seam_mix",
    reference="seam_operation.reference:mix",
    summary="Counts its calls",
    dims={"size": DimRule(most=64, multiple_of=8)},
    **COMMON,
)
WIDE = MIX.replace(
    name="wide_mix", summary="For large sizes only", dims={"size": DimRule(least=4096)}, priority=99, refine=None
)
BILINEAR = KernelSpec(
    name="quick_bilinear",
    impl="seam_operation.kernels:QuickBilinear",
    op="seam_bilinear",
    reference="seam_operation.reference:Bilinear",
    summary="One product of matrices for each row of the left side",
    dims={"left": DimRule(most=16), "right": DimRule(most=16)},
    forms=("plain@as_is", "int*"),
    refine="seam_operation.manifest:refine_bilinear",
    **COMMON,
)
MIXER = ModelSpec(
    name="mixer",
    impl="seam_operation.model:Mixer",
    api=2,
    summary="A layer of attention and a bilinear one",
    architectures=("SeamMixer",),
    shape="seam_operation.manifest:shape",
)


def refine_bilinear(request, probe):
    from core.api import Verdict

    odd = request.dims.get("left", 2) % 2
    return Verdict.of("left is odd" if odd else None, None if probe.available else "no device")


def shape(config):
    from core.api import ModelShape

    return ModelShape(
        vocab_size=config["vocab_size"],
        max_positions=64,
        num_layers=1,
        hidden_size=config["hidden_size"],
        num_heads=2,
        num_kv_heads=2,
        head_dim=config["hidden_size"] // 2,
        dtype="float32",
    )
