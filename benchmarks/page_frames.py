"""Frames of the chat page while an answer grows, in Chromium: no frame should take longer than 50 ms.

Build the page first: ``npm --prefix mashbox/ui run bench``. Needs ``pip install playwright`` and a Chromium::

    python benchmarks/page_frames.py --chromium /usr/bin/chromium

For each kind of answer: the longest times between frames and the longest tasks (over 50 ms) in milliseconds,
streamed at ``--speed`` tokens/s, and when the whole is opened at once. Read them on a quiet machine.
"""

import argparse
import functools
import http.server
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

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
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        for kind in options.kind or page.evaluate("bench.kinds"):
            report(page, kind, options)
        browser.close()


def report(page: Page, kind: str, options: argparse.Namespace) -> None:
    for how, call in (("streamed", "stream"), ("opened", "open")):
        if options.only and options.only != how:
            continue
        arguments = [kind, options.characters, options.speed]
        found = page.evaluate(f"([...given]) => bench.{call}(...given)", arguments)
        print(
            f"{kind:24} {how:9} frames {found['longest']} long tasks {found['longTasks']} "
            f"({found['frames']} frames, {found['elements']} elements)",
            flush=True,
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser's binary")
    parser.add_argument("--characters", type=int, default=50_000, help="length of each answer")
    parser.add_argument("--speed", type=int, default=300, help="tokens/s")
    parser.add_argument("--kind", action="append", help="only this kind of answer; may be repeated")
    parser.add_argument("--only", choices=("streamed", "opened"), help="only this way")
    return parser.parse_args()


if __name__ == "__main__":
    main()
