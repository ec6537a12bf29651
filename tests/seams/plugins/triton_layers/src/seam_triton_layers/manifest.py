from core_plugin_kernels_triton.experts import spec as experts
from core_plugin_kernels_triton.recurrent import spec as recurrent


def here(one):
    """Return a kernel for CPU tensors, on which Triton's interpreter runs; it is used where it is asked for."""
    return one.replace(name=f"here_{one.op}", devices={"cpu"}, maturity="experimental")


ROUTE, EXPERTS_IN, EXPERTS_OUT = here(experts.ROUTE), here(experts.EXPERTS_IN), here(experts.EXPERTS_OUT)
STORED_EXPERTS_IN = here(experts.STORED_EXPERTS_IN).replace(name="here_stored_experts_in")
STORED_EXPERTS_OUT = here(experts.STORED_EXPERTS_OUT).replace(name="here_stored_experts_out")
CAUSAL_CONV, LINEAR_ATTENTION = here(recurrent.CAUSAL_CONV), here(recurrent.LINEAR_ATTENTION)
SELECTIVE_SCAN, GATED_RECURRENCE = here(recurrent.SELECTIVE_SCAN), here(recurrent.GATED_RECURRENCE)
