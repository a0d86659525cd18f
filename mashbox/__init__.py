"""mashbox: a local server for large language models that speaks the OpenAI and Anthropic APIs."""

__version__ = "0.2.0"
