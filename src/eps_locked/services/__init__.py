"""Services over HTTP: one way to send, to try again and to give up, and the chat endpoint."""
