// @vitest-environment jsdom
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { limits } from "../../src/render/limits";
import { htmlOf, Shown } from "./support";

describe("Markdown", () => {
  it("draws what answers are made of", () => {
    const root = new Shown(
      "# Title\n\nA **bold** and *slanted* ~~old~~ `code` word\nand a line.\n\n1. one\n2. two\n\n3) three\n\n> quoted\n\n---\n",
    ).root;
    expect(root.querySelector("h3")!.textContent).toBe("Title");
    expect(root.querySelector("p")!.innerHTML).toBe(
      "A <strong>bold</strong> and <em>slanted</em> <s>old</s> <code>code</code> word\nand a line.",
    );
    expect([...root.querySelectorAll("ol")].map((list) => list.getAttribute("start"))).toEqual([null, "3"]);
    expect(root.querySelector("blockquote > p")!.textContent).toBe("quoted");
    expect(root.querySelector("hr")).not.toBeNull();
  });

  it("draws tables in a box that scrolls and is within the keyboard's reach", () => {
    const box = new Shown("| a | b | c |\n|:--|:-:|--:|\n| 1 | `x` | **3** |\n").root.querySelector(".md-table")!;
    expect(box.getAttribute("tabindex")).toBe("0");
    expect([...box.querySelectorAll("th")].map((cell) => cell.className)).toEqual(["md-left", "md-center", "md-right"]);
    expect(box.querySelector("[style]")).toBeNull();
    expect(box.querySelector("td:last-child strong")!.textContent).toBe("3");
  });

  it("draws tasks as boxes that are no controls", () => {
    const { root } = new Shown("- [x] a\n- [ ] b\n- [link]\n- c\n");
    expect([...root.querySelectorAll("[role=img]")].map((box) => box.getAttribute("aria-label"))).toEqual(["done", "open"]);
    expect(root.querySelector("input")).toBeNull();
    expect(root.querySelectorAll("li")[2]!.textContent).toBe("[link]");
  });

  it("knows the few tags that models write for want of a mark, and shows all others as text", () => {
    const p = new Shown("H<sub>2</sub>O<br>x<sup>2</sup> <kbd>Esc</kbd> <b>b</b> <sub onclick=x>y</sub>").root.querySelector(".md-section > *")!;
    expect(p.innerHTML).toBe(
      "H<sub>2</sub>O<br>x<sup>2</sup> <kbd>Esc</kbd> &lt;b&gt;b&lt;/b&gt; &lt;sub onclick=x&gt;y&lt;/sub&gt;",
    );
  });

  it("makes links of whole addresses only", () => {
    const { root } = new Shown("See https://example.com/a_b?c=d, main.py, example.com and me@example.com or <x@y.org>.");
    expect([...root.querySelectorAll("a")].map((link) => link.href)).toEqual(["https://example.com/a_b?c=d", "mailto:x@y.org"]);
    for (const link of root.querySelectorAll("a")) {
      expect(link.target).toBe("_blank");
      expect(link.rel).toBe("noopener noreferrer nofollow");
    }
  });

  it("shows images as links with their text", () => {
    const { root } = new Shown("![a *cat*](https://example.com/cat.png) [![b](https://e.org/i)](https://e.org/) ![](/x.png)");
    expect(root.querySelector("img")).toBeNull();
    expect(root.querySelector("a")!.textContent).toContain("a cat");
    expect(root.querySelector("a a")).toBeNull();
  });

  it("shows code with its language and a button to copy it", () => {
    const { root } = new Shown("```Python title=x\nprint(1)\n\n```\n\n    plain\n");
    const labels = [...root.querySelectorAll(".md-code-label")].map((label) => label.textContent);
    expect(labels).toEqual(["python", "Code"]);
    expect(root.querySelector("pre > code")!.textContent).toBe("print(1)\n\n");
    expect(root.querySelector("button")!.getAttribute("aria-label")).toBe("Copy code");
  });
});

describe("maths", () => {
  const formulas = (text: string) =>
    [...new Shown(text).root.querySelectorAll(".md-maths, .md-maths-display")].map((formula) => formula.textContent);

  it("finds formulas in all four kinds of marks", () => {
    expect(formulas("$a$ and \\(b\\) and $$c$$ and \\[d+1\\]")).toEqual(["a", "b", "c", "d+1"]);
    expect(formulas("So:\n$$\na\n- b\n= c\n$$\n\n- \\[\n  q\n  \\]\n")).toEqual(["a\n- b\n= c", "q"]);
  });

  it.each([
    "$5 and $10",
    "from $5 million to $6 million",
    "$5, or US$ 6",
    "it costs $5-$10, $1,000–$2,000 or 5$ or US$5.",
    "$HOME and $PATH, $HOME/$USER",
    "\\$a$ `$x$`",
    "a $ b $ c",
    "\\[not a link\\] \\(see above\\)",
    "$$",
    "$$\n\n$$",
    "```\n$x$\n```",
  ])("leaves %j alone", (text) => expect(formulas(text)).toEqual([]));
});

describe("an answer that grows", () => {
  it("looks at each step as if it had come at once", () => {
    const marks = [
      "a", "b c", "\n", "\n\n", "  ", "    ", "- ", "1. ", "> ", "# ", "```", "---", "|", "|-|-|\n", "a|b\n", "[x]", "[x]: http://u\n",
      "*", "**", "_", "~~", "`", "$a$", "$$", "<br>", "![i](http://i)", "[l](http://l)", "https://a.b ", "[ ] ", "\\",
    ];
    const pieces = fc.array(fc.array(fc.constantFrom(...marks), { maxLength: 6 }).map((some) => some.join("")), { maxLength: 8 });
    fc.assert(
      fc.property(pieces, (parts) => {
        const shown = new Shown();
        let text = "";
        for (const part of parts) {
          text += part;
          expect(shown.add(part).html, JSON.stringify(text)).toBe(htmlOf(text));
        }
      }),
      { numRuns: 25 },
    );
  });

  it("looks so in long lists and tables too", () => {
    const lists = ["- a\n- b\n", "1. a\n\n2. b\n", "> - q\n", "| a | b |\n|---|---|\n" + "| 1 | 2 |\n".repeat(limits.rows - 1)];
    const marks = ["- c", "\n", "\n", "  - d\n", "3. e\n", "| $x$ | [r] |\n", "| 3 |", "[r]: http://u\n", "- [ ] f\n", "- [r]\n", "  ```\n", "*", "g"];
    const pieces = fc.array(fc.array(fc.constantFrom(...marks), { maxLength: 4 }).map((some) => some.join("")), { maxLength: 10 });
    fc.assert(
      fc.property(fc.constantFrom(...lists), pieces, (list, parts) => {
        const shown = new Shown(list);
        let text = list;
        for (const part of parts) {
          text += part;
          expect(shown.add(part).html, JSON.stringify(text)).toBe(htmlOf(text));
        }
      }),
      { numRuns: 40 },
    );
  });

  it("puts long tables up in parts, each under the head", () => {
    const shown = new Shown("| a | b |\n|---|---|\n");
    for (let row = 1; row <= limits.rows + 1; row++) shown.add(`| ${row} | x |\n`);
    const parts = [...shown.root.querySelectorAll("[role=region]")];
    expect(parts.map((part) => part.getAttribute("aria-label"))).toEqual(["Table", `Table, from row ${limits.rows + 1}`]);
    expect(parts.map((part) => part.querySelectorAll("thead th").length)).toEqual([2, 2]);
    expect(parts.map((part) => part.querySelectorAll("tbody tr").length)).toEqual([limits.rows, 1]);
  });

  it("gives earlier links their targets when these come later", () => {
    const shown = new Shown("See [one] and [two].\n\nMore.\n\n");
    expect(shown.root.querySelector("a")).toBeNull();
    shown.add("[one]: https://one.example/\n\n");
    expect([...shown.root.querySelectorAll("a")].map((link) => link.textContent)).toEqual(["one"]);
    shown.add("[two]: https://two.example/ti");
    expect(shown.root.querySelectorAll("a")[1]!.href).toBe("https://two.example/ti");
    shown.add("tle");
    expect(shown.root.querySelectorAll("a")[1]!.href).toBe("https://two.example/title");
  });

  it("begins anew when the text is another", () => {
    const shown = new Shown("one\n\ntwo\n");
    shown.view.update("three", false);
    shown.view.flush();
    expect(shown.root.textContent).toBe("three");
  });

  it("keeps the elements of what is finished and of what is the same", () => {
    const shown = new Shown("First.\n\n- a\n- b\n");
    const kept = [shown.root.querySelector("p")!, shown.root.querySelector("li")!];
    shown.add("- c\n- d").add("\n\n# End\n\nWords and words").add(" and more");
    expect([shown.root.querySelector("p"), shown.root.querySelector("li")]).toEqual(kept);
    expect(shown.root.querySelector("p")).toBe(kept[0]);
    expect(shown.root.querySelector("li")).toBe(kept[1]);
  });
});

describe("the work of an update", () => {
  /** Leaves drawn and characters read for the last of many like pieces. */
  function lastCost(start: string, piece: string, times: number) {
    const shown = new Shown(start + piece.repeat(times));
    const before = { ...shown.view.work };
    shown.add(piece);
    const { drawnLeaves, parsedCharacters } = shown.view.work;
    return { leaves: drawnLeaves - before.drawnLeaves, characters: parsedCharacters - before.parsedCharacters };
  }

  const paragraph = "Some **words** with a [link](https://example.com) and `code` in a paragraph of an answer.\n\n";

  it.each([
    ["paragraphs", "", paragraph],
    ["headings and code", "", "## Title\n\n```js\nlet a = 1;\n```\n\n"],
  ])("is the same at the end of 10,000 characters: %s", (_name, start, piece) => {
    expect(lastCost(start, piece, Math.ceil(10_000 / piece.length))).toEqual(lastCost(start, piece, 20));
  });

  it.each([
    ["an item of a long list", "", "- an item with **some** words\n", 3],
    ["a row of a long table", "| a | b |\n|---|---|\n", "| one | two |\n", 4],
    ["a paragraph of a long quote", "", "> words\n>\n", 3],
  ])("draws what came only: %s", (_name, start, piece, most) => {
    expect(lastCost(start, piece, 250).leaves).toBeLessThanOrEqual(most);
  });

  it.each([
    ["list", "", "- an item with **some** words\n"],
    ["list that is apart", "", "- an item\n\n  and more\n\n"],
    ["table", "| a | b |\n|---|---|\n", "| one | two |\n"],
  ])("does not grow with a %s", (_name, start, piece) => {
    expect(lastCost(start, piece, 5 * limits.rows + 1)).toEqual(lastCost(start, piece, limits.rows + 1));
  });

  it("does not grow with a paragraph", () => {
    const piece = "Some **bold** words and `code`, then. ";
    const leaves = (times: number) => lastCost("", piece, times).leaves;
    expect(leaves(200)).toBeLessThanOrEqual(2);
    expect(leaves(200)).toBeGreaterThan(0);
  });

  it("is nothing but the new text in an open code block", () => {
    expect(lastCost("```py\n", "print('a line of code')\n", 2000)).toEqual({ leaves: 0, characters: 0 });
  });

  it("is nothing but the new text in a line of a million characters", () => {
    expect(lastCost("", "word ", 200_000)).toEqual({ leaves: 0, characters: 0 });
  });
});

describe("what is too much", () => {
  it("shows a paragraph that can't be cut as plain text, all of it, and the rest of the answer as ever", () => {
    const words = "**" + "words and ".repeat(limits.uncut / 10 + 1);
    const { root } = new Shown(words + "\n\n# Next\n");
    expect(root.querySelector("p")!.textContent).toContain(words.trim());
    expect(root.querySelector(".md-note")!.textContent).toMatch(/plain text/);
    expect(root.querySelector("h3")!.textContent).toBe("Next");
  });

  it("gives a very long paragraph its form", () => {
    const words = "Some **bold** words and `code` in them. ".repeat(300);
    const { root } = new Shown(words + "\n\n# Next\n");
    expect(root.querySelectorAll("p strong")).toHaveLength(300);
    expect(root.querySelectorAll("p > .md-part")).toHaveLength(1);
    expect(root.querySelector(".md-plain, .md-note")).toBeNull();
  });

  it("shows a line of a million characters in pieces, all of it", () => {
    const shown = new Shown("first\n\n");
    for (let part = 0; part < 100; part++) shown.add("x".repeat(10_000));
    const pieces = [...shown.root.querySelectorAll(".md-piece")];
    expect(pieces.map((piece) => piece.textContent).join("")).toBe("x".repeat(1_000_000));
    expect(Math.max(...pieces.map((piece) => piece.textContent.length))).toBeLessThanOrEqual(4000);
    expect(shown.root.querySelector(".md-section > *")!.textContent).toBe("first");
  });
});
