"""gpt-oss decoders."""
