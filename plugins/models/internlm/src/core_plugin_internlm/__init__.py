"""InternLM decoders, first to third generation."""
