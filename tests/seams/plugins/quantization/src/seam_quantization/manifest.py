from core.api import QuantSpec

PAIRS48 = QuantSpec(
    name="pairs48",
    impl="seam_quantization.format:Pairs48",
    api=2,
    summary="4-bit codes two to a byte, in groups of 48 inputs",
    methods={"pairs48"},
    refine="seam_quantization.check:refine",
)
