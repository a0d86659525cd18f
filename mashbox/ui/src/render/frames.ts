import { signal } from "@preact/signals";

/** Something on the page that is drawn in steps. */
export interface Drawing {
  readonly root: Element;
  /** Whether the reader is at its end, so that what stands further down comes first. */
  readonly isFromEnd: boolean;
  /** Draws until `end` (`performance.now()`), and at least one step; whether something is left to be drawn. */
  draw(end: number): boolean;
}

/** Milliseconds that all drawings of a page may take together: before something new is first shown, and in a frame. */
const budget = { first: 16, frame: 8 } as const;

const waiting = new Set<Drawing>();
/** Of those that wait, the ones that are new. */
const fresh = new Set<Drawing>();
let isSoon = false;
let isAwaited = false;

/** Whether some of what is new on the page is not drawn yet. */
export const isDrawing = signal(false);

/** Draws something new: what can be before the page is shown, the rest in the frames that follow. */
export function drawSoon(drawing: Drawing): void {
  waiting.add(drawing);
  fresh.add(drawing);
  isDrawing.value = true;
  if (isSoon) return;
  isSoon = true;
  // Once all that comes together with it is on the page too.
  queueMicrotask(() => {
    isSoon = false;
    turn(budget.first);
  });
}

/** Draws in the next frame, and in those that follow while something is left. */
export function drawNext(drawing: Drawing): void {
  waiting.add(drawing);
  if (isAwaited) return;
  isAwaited = true;
  const next = () => {
    isAwaited = false;
    turn(budget.frame);
  };
  // A hidden page draws no frames.
  if (document.hidden) setTimeout(next, 100);
  else requestAnimationFrame(next);
}

/** What has gone from the page. */
export function forget(drawing: Drawing): void {
  waiting.delete(drawing);
  settle(drawing);
}

function turn(milliseconds: number): void {
  const end = performance.now() + milliseconds;
  for (const drawing of inOrder()) {
    if (!drawing.root.isConnected || !drawing.draw(end)) forget(drawing);
    if (performance.now() >= end) break;
  }
  const [next] = waiting;
  if (next) drawNext(next);
}

function settle(drawing: Drawing): void {
  fresh.delete(drawing);
  isDrawing.value = fresh.size > 0;
}

/** What is in sight first, then what is nearest to it. */
function inOrder(): Drawing[] {
  if (waiting.size === 1) return [...waiting];
  const placed = [...waiting].map((drawing, index) => ({
    drawing,
    away: away(drawing.root),
    place: drawing.isFromEnd ? -index : index,
  }));
  return placed.sort((a, b) => a.away - b.away || a.place - b.place).map(({ drawing }) => drawing);
}

/** How far an element is out of sight, in pixels. */
function away(element: Element): number {
  const { top, bottom } = element.getBoundingClientRect();
  return Math.max(0, top - innerHeight, -bottom);
}
