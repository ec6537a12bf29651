from core.api import PlatformSpec

GRAPHBOX = PlatformSpec(
    name="graphbox",
    impl="seam_platform.platform:GraphBox",
    api=2,
    summary="The CPU with a graph facet and collectives of one rank",
    band=1,
    device_type="cpu",
    probe="seam_platform.probe:probe",
    dtypes=("float32",),
    block_size=16,
)
