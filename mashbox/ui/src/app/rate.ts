/** How fast pieces come: over the last seconds, so that a change is soon seen and no single pause is. */

const WINDOW_MS = 3000;
const LEAST_MS = 700;

export class Rate {
  private times: number[] = [];

  /** A piece has come at `now`, in milliseconds. */
  add(now: number): void {
    this.times.push(now);
  }

  /** Pieces a second; null while too little was seen. */
  at(now: number): number | null {
    this.times = this.times.filter((time) => now - time <= WINDOW_MS);
    const [first] = this.times;
    if (first === undefined || now - first < LEAST_MS) return null;
    // What came before the first one is not known: it begins the time, and counts for nothing.
    return ((this.times.length - 1) * 1000) / (now - first);
  }
}
