// @vitest-environment jsdom
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { drawInline } from "../../src/render/inline";
import { limits } from "../../src/render/limits";
import { piecesOf } from "../../src/render/pieces";
import { AnswerView } from "../../src/render/view";
import { contentOf, htmlOf } from "./support";

function drawn(text: string): string {
  const holder = document.createElement("p");
  drawInline(text, {}, holder);
  return holder.innerHTML;
}

const marks = [
  "word", "a ", " ", "b", "*", "**", "***", "_", "__", "~~", "~", "`", "``", "[", "]", "[l](http://l)", "](u \"t\")", "![i](http://i)", "\\",
  "\\(", "\\)", "\\[", "\\]", "$", "$$", "$x$", "5$", "<br>", "<sub>", "</sub>", "<kbd>k</kbd>", "https://a.b/c", "<http://d>", "&amp;", "\n", "  \n",
  "(", ")", ",", "。", "字", "é", "!",
];
const closed = ["**b**", "`c`", "[l](http://l)", "[r]", "$x$", "5 * 3", "a_b_c", "https://a.b/c", "H<sub>2</sub>O", "\n", "(so)", "$5", "\\(y\\)"];
const some = fc.oneof(
  { weight: 4, arbitrary: fc.array(fc.constantFrom(...closed), { maxLength: 6 }).map((parts) => parts.join(" ")) },
  { weight: 1, arbitrary: fc.array(fc.constantFrom(...marks), { maxLength: 8 }).map((parts) => parts.join("")) },
);
/** Little of it is open for long, so that there are places to be cut at. */
const filler = fc.integer({ min: 100, max: 900 }).map((length) => "some words and **bold** ones ".repeat(Math.ceil(length / 29)).slice(0, length));
const long = fc
  .array(fc.tuple(some, filler), { minLength: 6, maxLength: 12 })
  .map((parts) => parts.flat().join(" ").replace(/\n\s*\n/g, "\n").trim());

describe("a long paragraph", () => {
  it("is drawn in pieces as it is drawn at once", () => {
    let cuts = 0;
    fc.assert(
      fc.property(long, (text) => {
        const pieces = piecesOf(text);
        cuts += pieces.length - 1;
        expect(pieces.join("")).toBe(text);
        expect(pieces.map(drawn).join("")).toBe(drawn(text));
      }),
      { numRuns: 100 },
    );
    // Some 55; fewer than this by chance never happens.
    expect(cuts).toBeGreaterThan(10);
  });

  it("is cut at the same places whatever it came in", () => {
    fc.assert(
      fc.property(long, fc.integer({ min: 1, max: 700 }), (text, size) => {
        for (let end = size; end < text.length; end += size) piecesOf(text.slice(0, end));
        const grown = piecesOf(text);
        // What is remembered of other texts is forgotten.
        for (const other of "abcd") piecesOf(other.repeat(limits.piece + 1));
        expect(piecesOf(text)).toEqual(grown);
      }),
      { numRuns: 25 },
    );
  });

  it("is not cut where something waits for its end", () => {
    for (const opening of ["**", "`", "[", "~~", "_"]) {
      const text = `${opening}word ${"word ".repeat(limits.uncut / 5)}`;
      expect(piecesOf(text)).toHaveLength(1);
    }
    expect(piecesOf("word ".repeat(limits.uncut / 5 + 1)).length).toBeGreaterThan(4);
  });

  it("is cut in languages without spaces", () => {
    expect(piecesOf("这是一个很长的段落，没有空格。".repeat(400)).length).toBeGreaterThan(2);
  });
});

describe("a whole text", () => {
  const text = `# Title\n\n${"Some **words** that go on. ".repeat(300)}\n\n${"- item [r]\n".repeat(60)}\n| a | b |\n|---|---|\n${"| 1 | 2 |\n".repeat(120)}\n> - q\n\n[r]: http://u\n\n\`\`\`\ncode\n`;

  it.each([true, false])("is the same drawn from either end (from the end: %s)", (fromEnd) => {
    const root = document.createElement("div");
    const view = new AnswerView(root, fromEnd);
    view.update(text, false);
    view.flush();
    expect(contentOf(root)).toBe(htmlOf(text));
  });

  it.each([true, false])("goes on wherever its drawing is (from the end: %s)", (fromEnd) => {
    const more = "more\n```\n\nAnd *more*.\n";
    for (const steps of [0, 1, 3, 10, 200]) {
      const root = document.createElement("div");
      const view = new AnswerView(root, fromEnd);
      view.update(text, false);
      for (let step = 0; step < steps; step++) view.draw(0);
      view.update(text + more, true);
      view.flush();
      expect(contentOf(root)).toBe(htmlOf(text + more));
    }
  });

  it("stands in sections of some blocks each, from either end", () => {
    const blocks = Array.from({ length: 3 * limits.section + 5 }, (_, index) => `block ${index}`);
    for (const fromEnd of [true, false]) {
      const root = document.createElement("div");
      const view = new AnswerView(root, fromEnd);
      view.update(blocks.join("\n\n"), false);
      view.flush();
      expect([...root.querySelectorAll("p")].map((block) => block.textContent)).toEqual(blocks);
      expect([...root.children].map((section) => section.childElementCount)).toEqual([24, 24, 24, 5]);
      expect([...root.children].map((section) => section.classList.contains("md-finished"))).toEqual([true, true, true, false]);
    }
  });

  it("comes with its end first where the reader is there", () => {
    const root = document.createElement("div");
    const view = new AnswerView(root, true);
    view.update("first\n\nsecond\n\nlast", false);
    const seen = new Set<string>();
    while (view.draw(0)) seen.add(root.textContent);
    expect([...seen]).toEqual(["", "last", "secondlast", "firstsecondlast"]);
  });
});
