"""GLM-4 and ChatGLM decoders, dense and with experts."""
