"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ParticipantSpec

ROUTED_EXPERTS = ParticipantSpec(
    name="routed_experts",
    impl="core_plugin_routed_experts.engine:RoutedExperts",
    worker_impl="core_plugin_routed_experts.worker:RoutedExpertsWorker",
    front_impl="core_plugin_routed_experts.front:RoutedExpertsFront",
    parts="core_plugin_routed_experts.parts:PARTS",
    api=1,
    summary="Returns the experts of each token, and counts how often each is chosen",
    options="core_plugin_routed_experts.options:RoutedExpertsOptions",
    args=("return_routed_experts", "routed_experts_prompt_start"),
    taps=("experts",),
)
