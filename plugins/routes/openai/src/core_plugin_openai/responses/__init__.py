"""OpenAI's Responses API: items instead of messages, typed events instead of chunks, answers that can be kept."""
