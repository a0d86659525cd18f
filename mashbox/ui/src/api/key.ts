import { computed, signal } from "@preact/signals";

const NAME = "mashbox.key";

/** The key that requests are sent with; empty for none. */
export const key = signal(read());

/** Whether the key outlives this tab. */
export const remembered = signal(safely(() => localStorage.getItem(NAME) !== null) ?? false);

export const hasKey = computed(() => key.value !== "");

/** Take a key: for this tab's session only, unless `remember`. */
export function setKey(value: string, remember: boolean): void {
  forgetKey();
  key.value = value;
  remembered.value = remember;
  safely(() => (remember ? localStorage : sessionStorage).setItem(NAME, value));
}

export function forgetKey(): void {
  key.value = "";
  remembered.value = false;
  safely(() => sessionStorage.removeItem(NAME));
  safely(() => localStorage.removeItem(NAME));
}

function read(): string {
  return safely(() => sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME)) ?? "";
}

/** Browsers that keep nothing raise at the first touch of their storage. */
function safely<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch {
    return undefined;
  }
}
