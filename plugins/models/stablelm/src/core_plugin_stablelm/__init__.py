"""StableLM decoders."""
