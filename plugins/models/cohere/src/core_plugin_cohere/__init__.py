"""Command R and Aya decoders of Cohere."""
