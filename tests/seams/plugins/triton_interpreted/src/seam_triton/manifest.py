from core_plugin_kernels_triton.attention.spec import TRITON

INTERPRETED = TRITON.replace(name="triton_interpreted", devices={"cpu"}, maturity="experimental")
EAGER = INTERPRETED.replace(name="triton_eager", features=TRITON.features - {"replayable"})
