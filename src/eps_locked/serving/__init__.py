"""The local model behind the chat-completions API of OpenAI, on this machine's loopback only."""
