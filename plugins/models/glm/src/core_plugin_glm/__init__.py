"""GLM-4 and ChatGLM dense decoders."""
