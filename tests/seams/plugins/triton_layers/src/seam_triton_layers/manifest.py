from core_plugin_kernels_triton.experts import spec as experts


def here(one):
    """Return a kernel for CPU tensors, on which Triton's interpreter runs; it is used where it is asked for."""
    return one.replace(name=f"here_{one.op}", devices={"cpu"}, maturity="experimental")


ROUTE, EXPERTS_IN, EXPERTS_OUT = here(experts.ROUTE), here(experts.EXPERTS_IN), here(experts.EXPERTS_OUT)
