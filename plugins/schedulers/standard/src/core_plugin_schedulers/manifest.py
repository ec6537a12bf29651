"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import SchedulerPolicySpec

FCFS = SchedulerPolicySpec(
    name="fcfs",
    impl="core_plugin_schedulers.policies:FirstComeFirstServed",
    api=1,
    summary="First come, first served; the latest arrival gives way.",
    band=2,
    priority=60,
)

PRIORITY = SchedulerPolicySpec(
    name="priority",
    impl="core_plugin_schedulers.policies:PriorityOrder",
    api=1,
    summary="Smallest priority value first, then first come; the least urgent gives way.",
    band=2,
    priority=40,
)
