import { describe, expect, it } from "vitest";
import { choose, pathOf, pathTo, placesOf, treeOf, withMessage, type Tree } from "../../src/chat/tree";
import { ROOT } from "../../src/chat/types";
import { message, random } from "../helpers";

/** A: a1 → (b1, b2 → (c1, c2)); A': a2. */
const TREE = treeOf([
  message("a1", null, 1),
  message("a2", null, 6),
  message("b1", "a1", 2),
  message("b2", "a1", 3),
  message("c1", "b2", 4),
  message("c2", "b2", 5),
]);

const ids = (messages: { id: string }[]) => messages.map(({ id }) => id);

describe("pathOf", () => {
  it("takes the newest version where nothing is chosen", () => {
    expect(ids(pathOf(TREE, {}))).toEqual(["a2"]);
    expect(ids(pathOf(TREE, { [ROOT]: "a1" }))).toEqual(["a1", "b2", "c2"]);
  });

  it("takes what is chosen, and heeds no choice of a message that is gone", () => {
    expect(ids(pathOf(TREE, { [ROOT]: "a1", a1: "b2", b2: "c1" }))).toEqual(["a1", "b2", "c1"]);
    expect(ids(pathOf(TREE, { [ROOT]: "a1", a1: "gone" }))).toEqual(["a1", "b2", "c2"]);
  });

  it("is empty without messages", () => {
    expect(pathOf(new Map(), {})).toEqual([]);
  });
});

describe("placesOf", () => {
  it("counts versions in the order of their making", () => {
    expect(placesOf(TREE).get("b2")).toEqual({ index: 1, count: 2, previous: "b1", next: null });
    expect(placesOf(TREE).get("a1")).toEqual({ index: 0, count: 2, previous: null, next: "a2" });
  });
});

describe("choose", () => {
  it("brings a message of any branch onto the path", () => {
    expect(ids(pathOf(TREE, choose(TREE, { [ROOT]: "a2" }, "c1")))).toEqual(["a1", "b2", "c1"]);
  });

  it("remembers what was chosen elsewhere", () => {
    const chosen = choose(TREE, choose(TREE, {}, "c1"), "a2");
    expect(ids(pathOf(TREE, chosen))).toEqual(["a2"]);
    expect(ids(pathOf(TREE, choose(TREE, chosen, "a1")))).toEqual(["a1", "b2", "c1"]);
  });
});

describe("any tree", () => {
  it.each(Array.from({ length: 50 }, (_, seed) => seed))("shows every message when it is chosen (%i)", (seed) => {
    const tree = grown(random(seed));
    let chosen: Record<string, string> = {};
    for (const { id } of tree.values()) {
      chosen = choose(tree, chosen, id);
      const path = ids(pathOf(tree, chosen));
      expect(path).toContain(id);
      expect(path.slice(0, path.indexOf(id) + 1)).toEqual(ids(pathTo(tree, id)));
    }
  });
});

function grown(next: () => number): Tree {
  let tree: Tree = new Map();
  for (let made = 0; made < 30; made++) {
    const known = [null, ...tree.keys()];
    tree = withMessage(tree, message(`m${made}`, known[Math.floor(next() * known.length)]!, made));
  }
  return tree;
}
