/** How fast tokens come: over the last seconds, so that a change is soon seen and no single pause is. */

const WINDOW_MS = 3000;
const LEAST_MS = 700;

export class Rate {
  private seen: { time: number; tokens: number }[] = [];

  /** There are `tokens` at `now`, in milliseconds. */
  add(now: number, tokens: number): void {
    this.seen.push({ time: now, tokens });
  }

  /** Tokens a second; null while too little was seen. */
  at(now: number): number | null {
    this.seen = this.seen.filter(({ time }) => now - time <= WINDOW_MS);
    const [first, last] = [this.seen[0], this.seen.at(-1)];
    if (!first || !last || now - first.time < LEAST_MS) return null;
    // What came before the first count is not known: it begins the time, and counts for nothing.
    return ((last.tokens - first.tokens) * 1000) / (now - first.time);
  }
}
