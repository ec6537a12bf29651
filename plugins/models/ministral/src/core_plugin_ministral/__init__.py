"""Ministral and Ministral 3 decoders."""
