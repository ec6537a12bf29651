"""DeepSeek V4: windows and compressed entries in one softmax, hyper-connections, experts by token ids."""
