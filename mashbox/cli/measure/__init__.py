"""What ``mashbox bench`` measures and how: one client of any OpenAI-compatible server.

``wire`` asks and keeps the times, ``target`` is one server, ``texts`` makes prompts, ``units`` are the
things that are measured, ``course`` takes them in turn within the time there is, ``report`` is what comes
out, ``show`` and ``svg`` draw it.
"""
