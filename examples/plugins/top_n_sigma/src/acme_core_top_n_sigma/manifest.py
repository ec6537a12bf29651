"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import LogitsSpec, SamplingField

TOP_N_SIGMA = LogitsSpec(
    name="top_n_sigma",
    impl="acme_core_top_n_sigma.processor:TopNSigma",
    api=1,
    summary="Keeps the tokens whose logits are near the best one, in standard deviations of all",
    fields=(
        SamplingField(
            name="top_n_sigma",
            type="number",
            meaning="Keep the tokens whose logit is at most so many standard deviations below the best; 0 keeps all.",
            default=0.0,
            low=0.0,
            high=100.0,
        ),
    ),
    drafts=True,
)
