import { signal } from "@preact/signals";
import { readText } from "../chat/files";
import type { TextFile } from "../chat/types";
import { t } from "../texts";
import { note } from "./notices";
import { focusOn, MESSAGE_BOX } from "./view";

/** Files that go with the next message. They belong to this tab, and last through a reload of it. */

const KEPT = "mashbox.attached";

export const attached = signal<readonly TextFile[]>(restored());

/** Add text files; those that can't be taken are named with the reason. */
export async function attach(files: Iterable<File>): Promise<void> {
  const read = await Promise.allSettled([...files].map(readText));
  const taken = read.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  for (const one of read) if (one.status === "rejected") note((one.reason as Error).message);
  attached.value = [...attached.peek(), ...taken];
  if (!keep() && taken.length) note(t.filesNotKept);
  focusOn(MESSAGE_BOX);
}

export function detach(place: number): void {
  attached.value = attached.peek().filter((_, other) => other !== place);
  keep();
}

/** The files, for a message that is being sent; there are none afterwards. */
export function takeAttached(): readonly TextFile[] {
  const files = attached.peek();
  attached.value = [];
  keep();
  return files;
}

function restored(): TextFile[] {
  try {
    const kept: unknown = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(kept) ? kept.filter(isTextFile) : [];
  } catch {
    return [];
  }
}

function isTextFile(value: unknown): value is TextFile {
  const { name, text } = (value ?? {}) as Partial<TextFile>;
  return typeof name === "string" && typeof text === "string";
}

/** Whether the browser keeps them: it may have no room for so much, or keep nothing at all. */
function keep(): boolean {
  const files = attached.peek();
  try {
    // What was kept before is of no use when there is no room for what is there now.
    sessionStorage.removeItem(KEPT);
    if (files.length) sessionStorage.setItem(KEPT, JSON.stringify(files));
    return true;
  } catch {
    return false;
  }
}
