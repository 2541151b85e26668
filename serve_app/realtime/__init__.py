"""The Realtime API: live audio over a WebSocket, as OpenAI's clients and vLLM's own speak it."""
