"""Streams that outlive a connection: a client that lost its own reads on where it stopped, every event once."""
