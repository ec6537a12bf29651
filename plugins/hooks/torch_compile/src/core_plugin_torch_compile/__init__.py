"""Models compiled by torch.compile. Off unless the user asks for it."""
