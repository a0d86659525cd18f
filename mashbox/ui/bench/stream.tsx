import { render } from "preact";
import { Answer } from "../src/render/answer";
import { kinds } from "./kinds";
import "../src/style/main.css";

/** The longest frames first: milliseconds, and at which second they ended. */
interface Frames {
  longest: [number, number][];
  frames: number;
  elements: number;
}

const app = document.getElementById("app")!;

/** Streams `length` characters of a kind of answer, four a token; measures the time between frames. */
function stream(kind: string, length: number, tokensPerSecond: number): Promise<Frames> {
  const text = textOf(kind, length);
  render(null, app);
  return measured(async () => {
    const start = performance.now();
    for (let shown = 0; shown < text.length; ) {
      await new Promise((resolve) => setTimeout(resolve, 1000 / tokensPerSecond));
      shown = Math.min(text.length, Math.ceil(((performance.now() - start) / 1000) * tokensPerSecond) * 4);
      render(<Answer text={text.slice(0, shown)} streaming={shown < text.length} />, app);
    }
  });
}

/** Shows a whole answer, as when a kept conversation is opened. */
function open(kind: string, length: number): Promise<Frames> {
  const text = textOf(kind, length);
  render(null, app);
  return measured(async () => render(<Answer text={text} streaming={false} />, app));
}

/** Shows any text, to be looked at. */
function show(text: string): void {
  render(null, app);
  render(<Answer text={text} streaming={false} />, app);
}

function textOf(kind: string, length: number): string {
  const [start, piece] = kinds[kind]!;
  return (start + piece.repeat(Math.ceil(length / piece.length))).slice(0, length);
}

async function measured(work: () => Promise<void>): Promise<Frames> {
  // Not the page's own start, nor that of the trace.
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const frames: [number, number][] = [];
  const start = performance.now();
  let last = start;
  let handle = requestAnimationFrame(function next(now) {
    frames.push([now - last, (now - start) / 1000]);
    last = now;
    handle = requestAnimationFrame(next);
  });
  await work();
  // What comes behind the last text: colours, maths, the rest of a long answer.
  await new Promise((resolve) => setTimeout(resolve, 2000));
  cancelAnimationFrame(handle);
  const longest = frames
    .sort(([a], [b]) => b - a)
    .slice(0, 5)
    .map(([ms, second]): [number, number] => [Math.round(ms), Math.round(second * 10) / 10]);
  return { longest, frames: frames.length, elements: app.querySelectorAll("*").length };
}

Object.assign(window, { bench: { kinds: Object.keys(kinds), stream, open, show } });
