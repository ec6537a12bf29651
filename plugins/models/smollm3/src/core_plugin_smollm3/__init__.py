"""SmolLM3 decoders."""
