"""IQuest looped decoders."""
