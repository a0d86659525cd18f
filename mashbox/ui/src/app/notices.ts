import { signal } from "@preact/signals";

/** A short note at the page's foot, with something to do about it. */
export interface Notice {
  id: number;
  text: string;
  action?: { label: string; run: () => void };
}

const SHOWN_MS = 7000;

export const notices = signal<readonly Notice[]>([]);
/** What a screen reader says next. */
export const spoken = signal("");

let last = 0;

/** Show a note for some seconds; `gone` is called when it goes without its action. */
export function note(text: string, action?: { label: string; run: () => void }, gone?: () => void): void {
  const id = ++last;
  const leave = () => {
    if (notices.peek().some((notice) => notice.id === id)) dismiss(id);
  };
  const timer = setTimeout(() => {
    leave();
    gone?.();
  }, SHOWN_MS);
  const wrapped = action && {
    label: action.label,
    run: () => {
      clearTimeout(timer);
      leave();
      action.run();
    },
  };
  notices.value = [...notices.peek(), wrapped ? { id, text, action: wrapped } : { id, text }];
}

export function dismiss(id: number): void {
  notices.value = notices.peek().filter((notice) => notice.id !== id);
}

export function speak(text: string): void {
  spoken.value = text;
}
