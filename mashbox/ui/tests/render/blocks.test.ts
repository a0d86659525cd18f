import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import type { Token } from "markdown-it";
import { describe, expect, it } from "vitest";
import { BlockStream, type Block, type References } from "../../src/render/blocks";
import { limits } from "../../src/render/limits";
import { markdown } from "../../src/render/markdown";

/** What a reader would see of the blocks, so far as block rules decide it. */
function outline(blocks: readonly Block[]) {
  return blocks.map((block) => (block.plain ? { plain: block.source } : block.tokens.map(face)));
}

function face(token: Token) {
  const { type, tag, nesting, level, content, info, hidden, attrs } = token;
  return { type, tag, nesting, level, content, info, hidden, attrs };
}

/** The whole text by markdown-it alone. */
function readAtOnce(text: string) {
  const env = { references: {} as References };
  const tokens: Token[] = [];
  markdown.block.parse(text.replace(/\r\n?/g, "\n").replaceAll("\0", "\uFFFD"), markdown, env, tokens);
  const blocks: Token[][] = [];
  let current: Token[] = [];
  for (const token of tokens) {
    if (token.type !== "reference_definition") current.push(token);
    if (token.level === 0 && token.nesting !== 1 && current.length > 0) {
      blocks.push(current);
      current = [];
    }
  }
  return { blocks: blocks.map((block) => block.map(face)), references: { ...env.references } };
}

/** Feeds `pieces` and calls `check` behind each with the text and the blocks so far. */
function feed(pieces: readonly string[], check: (text: string, blocks: Block[], stream: BlockStream) => void) {
  const stream = new BlockStream();
  const finished: Block[] = [];
  let open: Block[] = [];
  let grown = "";
  let text = "";
  for (const piece of pieces) {
    text += piece;
    const change = stream.append(piece);
    if (change.grown !== null) grown += change.grown;
    else {
      grown = "";
      finished.push(...change.finished);
      open = change.open;
    }
    check(text, [...finished, ...withGrown(open, grown)], stream);
  }
}

function withGrown(open: Block[], grown: string): Block[] {
  const last = open.at(-1);
  if (grown === "" || !last) return open;
  const fence = Object.assign(Object.create(Object.getPrototypeOf(last.tokens[0])), last.tokens[0]) as Token;
  fence.content += grown;
  return [...open.slice(0, -1), { ...last, tokens: [fence] }];
}

function expectSameAsAtOnce(pieces: readonly string[]) {
  feed(pieces, (text, blocks, stream) => {
    const whole = readAtOnce(text);
    const isSame = isDeepStrictEqual(outline(blocks), whole.blocks);
    if (!isSame) expect(outline(blocks), JSON.stringify(text)).toEqual(whole.blocks);
    const targets = { ...stream.targets() };
    if (!isDeepStrictEqual(targets, whole.references)) expect(targets, JSON.stringify(text)).toEqual(whole.references);
  });
}

const documents: Record<string, string> = {
  headings: "# One\ntext\n\nTwo\n===\n\nThree\nfour\n---\n\n#not\n####### no\n",
  lists: "Here:\n- a\n- b\n\n  more\n- c\n\n\n1. x\n2. y\n   - z\n\n     w\n\n3) other\n\ntext\n* * *\n- [ ] open\n- [x] done\n",
  "a list gone loose": "- a\n- b\n\n- c\n\nend\n",
  "a table": "Text\n| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 |\n\nnext | x\n--|--\n1|2\n> q\n",
  "a row that is no delimiter": "a\n| x | y |\n|--|--|x\n",
  fences: "```js\nlet a;\n\n```\n~~~~\n```\n~~~\n~~~~\ntext\n   ```\n  in\n   ```   \n```never closed\na\n`` `\n",
  "a fence in a list": "- a\n  ```py\n  x\n\n  y\n  ```\n- b\n```\ntop\n```\n",
  "indented code": "para\n    lazy\n\n    code\n\n    more\n  \ntext\n",
  quotes: "> a\nlazy\n> > b\n\n> c\n- d\n> ```\n> code\nout\n",
  references: "[a] and [b][c]\n\n[a]: /url 'title\ngoes on'\n[b]: <x>\n\n> [c]: http://c\n\n[d]: /u\n\"open\n\nno title\n",
  "a reference that is none": "[foo]: /url bad\nmore\n\n[foo]:\n\n[bar]:\n/x\n",
  maths: "So\n$$\na\n- b\n= c\n$$\n\n\\[ x\n\\]\n\n$$\nopen\n\n$$ y $$\n\n$$z$$ in text\n\n- $$\n  q\n  $$\n\n\\[\na\n===\n\\]\n",
  html: "<div>\n*a*\n\n</div>\n<!-- x\n\ny -->\n<script>\nalert(1)\n</script>\n",
  "line ends": "a\r\nb\r\rc\n\r\n```\r\nx\r\n```\r\n",
  "odd characters": "\0\n\n\u00a0\n\f\n\u2028\n\ttab\n \t \n",
};

describe("a text in pieces gives the blocks of the whole text", () => {
  it.each(Object.entries(documents))("%s, character by character", (_name, text) => {
    expectSameAsAtOnce([...text]);
  });

  it("any text of Markdown's own marks, in any pieces", () => {
    const marks = [
      "a", "b c", "\n", "\n", "\n\n", " ", "  ", "    ", "\t", "- ", "* ", "+", "1. ", "2) ", "> ", ">", "# ", "```", "``", "~~~",
      "---", "===", "=", "-", "***", "|", "|-|-|", "a|b", "[x]", "[x]: /u", "[y]:", "'t", "\"", "$$", "\\[", "\\]", "$", "\\",
      "<div>", "<!--", "-->", "[ ] ", "\r", "js", ":", "0",
    ];
    const pieces = fc.array(fc.array(fc.constantFrom(...marks), { maxLength: 5 }).map((some) => some.join("")), { maxLength: 14 });
    fc.assert(fc.property(pieces, expectSameAsAtOnce), { numRuns: 1000 });
  });

  const lines = [
    "- a\n", "- ", "b", "\n", "\n", "-\n", "- ```\n", "  ```\n", "  - c\n", "    d\n", "  e\n", " - f\n", "* g\n", "1. h\n", "2) i\n", "> j\n",
    "- k | l\n", "|-|-|\n", "---\n", "- # m\n", "\t", "    ", "===\n", "- [n]: /u\n", "[n]\n", "# o\n", "$$\n", "$$\n", "+ p\n",
  ];
  const growth = fc.array(fc.array(fc.constantFrom(...lines), { minLength: 1, maxLength: 4 }).map((some) => some.join("")), { maxLength: 12 });

  it.each(["- a\n- b\n", "- a\n\n- b\n", "Before:\n1. a\n2. b\n", "- ```\n- x\n"])("%j and any lines behind it", (list) => {
    fc.assert(fc.property(growth, (pieces) => expectSameAsAtOnce([list, ...pieces])), { numRuns: 250 });
  });

  it("a long table and any lines behind it", () => {
    const rows = fc.integer({ min: limits.rows - 2, max: 2 * limits.rows + 2 });
    const cells = fc.array(fc.constantFrom("| 1 | 2 |\n", "|3", "|\n", "4\n", "\n", "\\|", "`|`", "    5\n", "|-|-|\n", "> 6\n", "$$\n", "$$\n", "- 7\n", "# 8\n"), { maxLength: 30 });
    fc.assert(
      fc.property(rows, cells, (count, pieces) => {
        expectSameAsAtOnce(["Before\n| a | b |\n|--|:-:|\n", "| x | y |\n".repeat(count), ...pieces]);
      }),
      { numRuns: 40 },
    );
  });

  it("a document of many kinds, cut anywhere", () => {
    const whole = fc.array(fc.constantFrom(...Object.values(documents)), { minLength: 1, maxLength: 3 });
    const cuts = fc.array(fc.nat(600), { maxLength: 12 });
    fc.assert(
      fc.property(whole, cuts, (parts, places) => {
        const text = parts.join("\n");
        const sorted = [0, ...places.map((place) => place % (text.length + 1)).sort((a, b) => a - b), text.length];
        expectSameAsAtOnce(sorted.slice(1).map((end, index) => text.slice(sorted[index], end)));
      }),
      { numRuns: 300 },
    );
  });
});

describe("what is read again", () => {
  const paragraph = "Some words that fill a line of an answer, and then some more of them.\n\n";

  function parsedFor(text: string): number {
    const stream = new BlockStream();
    for (let at = 0; at < text.length; at += 5) stream.append(text.slice(at, at + 5));
    return stream.parsed;
  }

  it("grows with the answer, not with its square", () => {
    expect(parsedFor(paragraph.repeat(400))).toBeLessThan(4.2 * parsedFor(paragraph.repeat(100)));
  });

  it("is nothing while code grows", () => {
    const stream = new BlockStream();
    stream.append("```py\nx = 1\n");
    const before = stream.parsed;
    for (let line = 0; line < 10_000; line++) stream.append(`print(${line})\n`);
    expect(stream.parsed).toBe(before);
  });

  it("is nothing behind a block that is over the limit", () => {
    const stream = new BlockStream();
    const change = stream.append("before\n\n" + "x".repeat(limits.block + 1));
    expect(change.finished).toHaveLength(1);
    expect(change.open[0]!.plain).toBe(true);
    const before = stream.parsed;
    expect(stream.append("\n\n# more\n").open[0]!.source).toMatch(/^x+\n\n# more\n$/);
    expect(stream.parsed).toBe(before);
  });
});
