"""dots.llm1 decoders."""
