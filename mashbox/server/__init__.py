"""The HTTP server: boundary, waiting line, protocols. Never imports torch."""
