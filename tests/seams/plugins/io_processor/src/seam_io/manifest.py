from core.api import IOProcessorSpec, ModelSpec

NEAREST = IOProcessorSpec(
    name="nearest", impl="seam_io.processors:Nearest", api=1, summary="Which choice is nearest to a text"
)
PICTURE = IOProcessorSpec(name="picture", impl="seam_io.processors:Picture", api=1, summary="Pictures in, rows out")
FAULTY = IOProcessorSpec(name="faulty", impl="seam_io.processors:Faulty", api=1, summary="Fails as it is told")
PATCHES = ModelSpec(
    name="patches",
    impl="seam_io.model:Patches",
    api=2,
    summary="Reads pictures and no text",
    architectures=("SeamPatches",),
    shape="seam_io.shape:shape",
    tasks=frozenset({"embed"}),
)
