"""LongCat-Flash decoders."""
