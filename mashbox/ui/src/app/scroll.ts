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

/** The message that is to be brought into view. */
export function isAsked(message: string): boolean {
  return asked === message;
}

export function scrollToEnd(): void {
  asked = null;
  atEnd.value = true;
  if (scroller) scroller.scrollTop = isBegun() ? scroller.scrollHeight : 0;
}

/** Another conversation was opened: its end is shown, unless one of its messages is asked for. */
export function begin(): void {
  if (asked) settle();
  else scrollToEnd();
}

/** What stands in a conversation that is not begun is read from its top. */
function isBegun(): boolean {
  return scroller?.querySelector("article") !== null;
}

function settle(): void {
  if (!scroller) return;
  const target = asked && document.getElementById(`message-${asked}`);
  if (target) {
    asked = null;
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  } else if (atEnd.peek()) {
    if (isBegun()) scroller.scrollTop = scroller.scrollHeight;
  } else {
    measure();
  }
}

let last = 0;

function measure(): void {
  if (!scroller) return;
  const isNear = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
  // Only who goes up leaves the end: the end itself may have gone down before this is heard of.
  if (isNear || scroller.scrollTop < last) atEnd.value = isNear;
  last = scroller.scrollTop;
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
