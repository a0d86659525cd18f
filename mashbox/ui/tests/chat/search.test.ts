import { describe, expect, it } from "vitest";
import { excerptOf } from "../../src/chat/excerpt";
import { fold } from "../../src/chat/fold";
import { SearchIndex, wordsOf } from "../../src/chat/search";
import { anyText, conversation, message, random } from "../helpers";

describe("fold", () => {
  it("makes no difference between cases and accents", () => {
    expect(fold("Zürich ÉCOLE ñandú")).toBe("zurich ecole nandu");
  });

  it.each(Array.from({ length: 40 }, (_, seed) => seed))("keeps the length of any text (%i)", (seed) => {
    const text = anyText(random(seed), ["ﬁ", "ß", "İ", "e\u0301", "😀", "A", "ǅ", "㎏", "\u0307", "Å", " "], 30);
    expect(fold(text)).toHaveLength(text.length);
  });
});

describe("SearchIndex", () => {
  const one = conversation("one", { title: "Baking bread", updated: 5 });
  const two = conversation("two", { title: "Garden", updated: 9 });
  const index = new SearchIndex();
  index.put(message("m1", null, 1, { conversation: "one", text: "How long does sourdough rest?" }));
  index.put(message("m2", "m1", 2, { conversation: "one", text: "Overnight, at room temperature." }));
  index.put(message("m3", null, 3, { conversation: "two", text: "Bread for the birds, overnight" }));
  const found = (query: string) => index.search(query, [one, two]).map((hit) => hit.conversation.id);

  it("wants every word, wherever in the conversation", () => {
    expect(found("sourdough ROOM")).toEqual(["one"]);
    expect(found("sourdough birds")).toEqual([]);
    expect(found("garden birds")).toEqual(["two"]);
  });

  it("puts titles first, then the newest", () => {
    expect(found("bread")).toEqual(["one", "two"]);
    expect(found("overnight")).toEqual(["two", "one"]);
  });

  it("finds the text of files, and follows changes", () => {
    const own = new SearchIndex();
    const files = [{ name: "notes.txt", text: "saffron" }];
    own.put(message("m", null, 1, { conversation: "one", files }));
    expect(own.search("saffron", [one])).toHaveLength(1);
    own.put(message("m", null, 1, { conversation: "one" }));
    expect(own.search("saffron", [one])).toHaveLength(0);
    own.drop("one");
    expect(own.search("text", [one])).toHaveLength(0);
  });

  it("names the message to show", () => {
    expect(index.search("temperature", [one, two])[0]?.message?.id).toBe("m2");
    expect(index.search("baking", [one])[0]?.message).toBeNull();
  });

  it("finds nothing for nothing", () => {
    expect(found("  ")).toEqual([]);
  });
});

describe("excerptOf", () => {
  const asked = (text: string, query: string) => excerptOf({ role: "user", text }, wordsOf(query));
  const answered = (text: string, query: string) => excerptOf({ role: "assistant", text }, wordsOf(query));

  it("marks hits at odd places", () => {
    expect(asked("Ça va, Ca?", "ça")).toEqual(["", "Ça", " va, ", "Ca", "?"]);
  });

  it("cuts around the first hit", () => {
    const parts = asked(`${"before ".repeat(40)}needle${" after".repeat(60)}`, "needle");
    expect(parts[1]).toBe("needle");
    expect(parts[0]).toMatch(/^…before/);
    expect(parts[2]).toMatch(/…$/);
    expect(parts.join("").length).toBeLessThan(200);
  });

  it("shows an answer without its marks", () => {
    const text = "# All about **bread**\n\n| flour | water |\n|---|---|\n| *500* g | `350` g |\n\n- [x] knead [twice](http://a.b)\n";
    expect(answered(text, "water").join("")).toBe("All about bread flour water 500 g 350 g [x] knead twice");
    expect(answered("```python\nprint(sourdough)\n```\n", "sourdough")).toEqual(["print(", "sourdough", ")"]);
    expect(answered("A **so**urdough", "sourdough")).toEqual([]);
  });

  it("knows in what it begins", () => {
    const code = `\`\`\`sh\n${"echo *\n".repeat(100)}echo needle\n\`\`\`\n\nThen **go on**.\n`;
    expect(answered(code, "needle").join("")).toMatch(/echo \* echo needle Then go on\.$/);
    const table = `| a | b |\n|---|---|\n${"| **x** | y |\n".repeat(100)}| needle | z |\n`;
    expect(answered(table, "needle").join("")).toMatch(/x y needle z$/);
  });

  it("shows what was asked as it was written", () => {
    expect(asked("What is **bold**?\n\nTell me.", "tell").join("")).toBe("What is **bold**? Tell me.");
  });

  it("shows what is found in a mark alone as it is written", () => {
    expect(answered("See [it](http://example.com/bread).", "bread").join("")).toBe("See [it](http://example.com/bread).");
  });

  it("looks into files", () => {
    const files = [{ name: "notes.txt", text: "buy saffron" }];
    expect(excerptOf({ role: "user", text: "What?", files }, ["saffron"])).toEqual(["buy ", "saffron", ""]);
  });

  it("is quick in a text of any size, whose marks are open around the hit", () => {
    const text = `${"word ".repeat(20_000)}**needle${" word".repeat(20_000)}`;
    expect(answered(text, "needle")[1]).toBe("needle");
    expect(answered("x".repeat(100_000) + "needle" + "y".repeat(100_000), "needle")[1]).toBe("needle");
  });

  it.each(Array.from({ length: 40 }, (_, seed) => seed))("is a piece of the text (%i)", (seed) => {
    const text = anyText(random(seed), ["ab", "B", " ", "é", "needle", ".*", "\n"], 80);
    const words = wordsOf("needle é .*");
    const parts = excerptOf({ role: "user", text }, words);
    const whole = parts.join("").replace(/^…/, "").replace(/…$/, "");
    expect(text.replace(/\s+/g, " ").trim()).toContain(whole);
    parts.forEach((part, place) => place % 2 && expect(words).toContain(fold(part)));
  });
});
