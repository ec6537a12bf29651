from core.api import SchedulerPolicySpec

GENTLE = SchedulerPolicySpec(
    name="gentle",
    impl="seam_policy.policy:Gentle",
    api=1,
    summary="Few at a time, small chunks, the shortest prompt gives way",
    maturity="experimental",
)
