"""`core bench tune`: sizes of tiles, timed on the card at hand."""
