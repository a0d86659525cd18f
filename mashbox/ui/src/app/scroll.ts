import { signal } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";

/** The thread's place: it follows a growing answer while its end is in view, and stays put when it is not. */

const NEAR_PX = 48;

export const atEnd = signal(true);
let scroller: HTMLElement | null = null;
let asked: string | null = null;

/** Bring a message into view, now or once it is there. */
export function scrollTo(message: string): void {
  asked = message;
  atEnd.value = false;
  requestAnimationFrame(settle);
}

export function scrollToEnd(): void {
  asked = null;
  atEnd.value = true;
  if (scroller) scroller.scrollTop = scroller.scrollHeight;
}

/** Another conversation was opened: its end is shown, unless one of its messages is asked for. */
export function begin(): void {
  if (!asked) scrollToEnd();
}

function settle(): void {
  if (!scroller) return;
  const target = asked && document.getElementById(`message-${asked}`);
  if (target) {
    asked = null;
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  } else if (atEnd.peek()) {
    scroller.scrollTop = scroller.scrollHeight;
  } else {
    measure();
  }
}

function measure(): void {
  if (!scroller) return;
  atEnd.value = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
}

/** Before a change in the middle of the thread: what is in view stays there. */
export function stay(): void {
  atEnd.value = false;
}

/** For the scrolling element, whose only child is the content. */
export function useFollow(): { ref: (element: HTMLElement | null) => void; onScroll: () => void } {
  const observer = useRef<ResizeObserver | null>(null);
  useEffect(() => () => observer.current?.disconnect(), []);
  const ref = useCallback((element: HTMLElement | null) => {
    observer.current?.disconnect();
    scroller = element;
    if (!element) return;
    observer.current = new ResizeObserver(settle);
    observer.current.observe(element);
    if (element.firstElementChild) observer.current.observe(element.firstElementChild);
  }, []);
  return { ref, onScroll: measure };
}
