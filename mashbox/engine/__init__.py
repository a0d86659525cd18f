"""What turns a request into events: prompt, tokens, text; the worker is started from here."""
