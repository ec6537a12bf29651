"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec


def _causal(name: str, summary: str, place: str, architecture: str, shape: str = "shape") -> ModelSpec:
    """Return what serves the models of an architecture that generate.

    Args:
        place: Its module and class.
    """
    module = place.partition(":")[0]
    return ModelSpec(
        name=name,
        impl=f"core_plugin_gpt.{place}",
        api=2,
        summary=summary,
        architectures=(architecture,),
        shape=f"core_plugin_gpt.{module}:{shape}",
    )


def _pooling(of: ModelSpec, family: str) -> ModelSpec:
    """Return what serves the embedding models and classifiers of a family."""
    return ModelSpec(
        name=f"{of.name}-pooling",
        impl=of.impl,
        api=2,
        summary=f"Embedding models and classifiers made of {of.summary}",
        architectures=(f"{family}Model", f"{family}ForSequenceClassification"),
        shape=of.shape,
        tasks=frozenset({"embed", "classify"}),
    )


GPT2 = _causal("gpt2", "GPT-2 and its distilled forms", "gpt2:GPT2", "GPT2LMHeadModel")
BIGCODE = _causal("gpt-bigcode", "SantaCoder and StarCoder 1", "bigcode:GPTBigCode", "GPTBigCodeForCausalLM")
NEO = _causal("gpt-neo", "GPT-Neo", "neo:GPTNeo", "GPTNeoForCausalLM")
NEOX = _causal("gpt-neox", "GPT-NeoX and Pythia", "neox:GPTNeoX", "GPTNeoXForCausalLM")
GPTJ = _causal("gptj", "GPT-J", "gptj:GPTJ", "GPTJForCausalLM", "shape_gptj")
CODEGEN = _causal("codegen", "CodeGen", "gptj:CodeGen", "CodeGenForCausalLM", "shape_codegen")
JAIS = _causal("jais", "Jais", "jais:Jais", "JAISLMHeadModel")

GPT2_POOLING = _pooling(GPT2, "GPT2")
BIGCODE_POOLING = _pooling(BIGCODE, "GPTBigCode")
NEO_POOLING = _pooling(NEO, "GPTNeo")
NEOX_POOLING = _pooling(NEOX, "GPTNeoX")
GPTJ_POOLING = _pooling(GPTJ, "GPTJ")
