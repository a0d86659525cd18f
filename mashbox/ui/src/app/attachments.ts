import { signal } from "@preact/signals";
import { readText } from "../chat/files";
import type { TextFile } from "../chat/types";
import { note } from "./notices";
import { focusOn, MESSAGE_BOX } from "./view";

/** Files that go with the next message. */
export const attached = signal<readonly TextFile[]>([]);

/** Add text files; those that can't be taken are named with the reason. */
export async function attach(files: Iterable<File>): Promise<void> {
  const read = await Promise.allSettled([...files].map(readText));
  const taken = read.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  for (const one of read) if (one.status === "rejected") note((one.reason as Error).message);
  attached.value = [...attached.peek(), ...taken];
  focusOn(MESSAGE_BOX);
}

export function detach(place: number): void {
  attached.value = attached.peek().filter((_, other) => other !== place);
}
