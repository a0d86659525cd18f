"""Frames of the chat page while an answer grows, in Chromium: no frame should take longer than 50 ms.

Build the page first: ``npm --prefix mashbox/ui run bench``. Needs ``pip install playwright`` and a Chromium::

    python benchmarks/page_frames.py --chromium /usr/bin/chromium

For each kind of answer, streamed at ``--speed`` tokens/s and when the whole is opened at once, in
milliseconds: the longest times between frames, and the processor time of the longest tasks of the page's
thread. The former are for a quiet machine; the latter change little when others use the machine as well.
"""

import argparse
import functools
import http.server
import json
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

PAGE = Path(__file__).parent.parent / "mashbox" / "ui" / "dist-bench"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def main() -> None:
    options = arguments()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(PAGE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        address = f"http://127.0.0.1:{server.server_port}/index.html"
        for kind in options.kind or kinds(browser, address):
            for how in ("stream", "open"):
                if options.only in (None, how):
                    report(browser, address, kind, how, options)
        browser.close()


def kinds(browser: Browser, address: str) -> list[str]:
    page = browser.new_page()
    page.goto(address)
    found: list[str] = page.evaluate("bench.kinds")
    page.close()
    return found


def report(browser: Browser, address: str, kind: str, how: str, options: argparse.Namespace) -> None:
    page = browser.new_page()
    page.goto(address)
    browser.start_tracing(page=page, categories=["toplevel"])
    found = page.evaluate(f"([...given]) => bench.{how}(...given)", [kind, options.characters, options.speed])
    tasks = longest_tasks(json.loads(browser.stop_tracing())["traceEvents"])
    frames = " ".join(f"{ms}@{second:g}s" for ms, second in found["longest"])
    print(
        f"{kind:24} {how:7} frames {frames} tasks {tasks} "
        f"({found['frames']} frames, {found['elements']} elements)",
        flush=True,
    )
    page.close()


def longest_tasks(events: list[dict[str, Any]]) -> list[float]:
    """Processor milliseconds of the longest tasks of the thread that runs the page."""
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    times = [
        event.get("tdur", 0) / 1000
        for event in events
        if event["name"] == "ThreadControllerImpl::RunTask" and (event["pid"], event["tid"]) in threads
    ]
    return [round(time, 1) for time in sorted(times, reverse=True)[:5]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser's binary")
    parser.add_argument("--characters", type=int, default=50_000, help="length of each answer")
    parser.add_argument("--speed", type=int, default=300, help="tokens/s")
    parser.add_argument("--kind", action="append", help="only this kind of answer; may be repeated")
    parser.add_argument("--only", choices=("stream", "open"), help="only this way")
    return parser.parse_args()


if __name__ == "__main__":
    main()
