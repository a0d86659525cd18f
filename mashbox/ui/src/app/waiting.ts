import { effect, type ReadonlySignal } from "@preact/signals";

/** Settles when `test` holds; rejects with the signal's reason when that is aborted first. */
export function until(test: () => boolean, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    let stop: (() => void) | undefined;
    const end = (settle: () => void) => {
      signal.removeEventListener("abort", abort);
      // Not within the effect, which may run before its own stop is known.
      queueMicrotask(() => stop?.());
      settle();
    };
    const abort = () => end(() => reject(signal.reason as Error));
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort);
    stop = effect(() => {
      if (test()) end(resolve);
    });
  });
}

/** Settles after `seconds`, telling each second how many are left, or as soon as `skip` changes. */
export async function countDown(
  seconds: number,
  tell: (left: number) => void,
  skip: ReadonlySignal<number>,
  signal: AbortSignal,
): Promise<void> {
  const ends = Date.now() + seconds * 1000;
  const skipped = skip.peek();
  const left = () => Math.ceil((ends - Date.now()) / 1000);
  tell(Math.max(0, left()));
  // By the clock, not by counting ticks: a hidden page's timers run late.
  const timer = setInterval(() => tell(Math.max(0, left())), 250);
  const over = new Promise<void>((resolve) => setTimeout(resolve, seconds * 1000));
  try {
    await Promise.race([over, until(() => skip.value !== skipped, signal)]);
  } finally {
    clearInterval(timer);
  }
}
