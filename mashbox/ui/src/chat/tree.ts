import { ROOT, type Message } from "./types";

/** The messages of a conversation by id, in the order of their making. */
export type Tree = ReadonlyMap<string, Message>;

export type Chosen = Readonly<Record<string, string>>;

/** A message's place among the versions of it: `index` counts from 0. */
export interface Place {
  index: number;
  count: number;
  previous: string | null;
  next: string | null;
}

export function treeOf(messages: Iterable<Message>): Tree {
  const sorted = [...messages].sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
  return new Map(sorted.map((message) => [message.id, message]));
}

export function withMessage(tree: Tree, message: Message): Tree {
  return new Map(tree).set(message.id, message);
}

/** The messages that are shown: from the first, each time the chosen child, else the newest. */
export function pathOf(tree: Tree, chosen: Chosen): Message[] {
  const children = Map.groupBy(tree.values(), (message) => message.parent);
  const path: Message[] = [];
  let at: string | null = null;
  for (;;) {
    const next: Message[] = children.get(at) ?? [];
    const message = next.find(({ id }) => id === chosen[at ?? ROOT]) ?? next.at(-1);
    if (!message) return path;
    path.push(message);
    at = message.id;
  }
}

/** From the first message to this one. */
export function pathTo(tree: Tree, id: string | null): Message[] {
  const path: Message[] = [];
  for (let at = id === null ? undefined : tree.get(id); at; at = parentOf(tree, at)) path.unshift(at);
  return path;
}

/** Every message's place, in one pass. */
export function placesOf(tree: Tree): Map<string, Place> {
  const places = new Map<string, Place>();
  for (const versions of Map.groupBy(tree.values(), (message) => message.parent).values()) {
    versions.forEach(({ id }, index) => {
      const [previous, next] = [versions[index - 1]?.id ?? null, versions[index + 1]?.id ?? null];
      places.set(id, { index, count: versions.length, previous, next });
    });
  }
  return places;
}

/** The choice with which the path runs through this message. */
export function choose(tree: Tree, chosen: Chosen, id: string): Record<string, string> {
  const all = { ...chosen };
  for (const message of pathTo(tree, id)) all[message.parent ?? ROOT] = message.id;
  return all;
}

function parentOf(tree: Tree, message: Message): Message | undefined {
  return message.parent === null ? undefined : tree.get(message.parent);
}
