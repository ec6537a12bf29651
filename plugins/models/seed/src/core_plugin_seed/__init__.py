"""Seed-OSS decoders."""
