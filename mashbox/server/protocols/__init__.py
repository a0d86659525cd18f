"""One module per public API: a typed body, `to_request()` and an encoder of events."""
