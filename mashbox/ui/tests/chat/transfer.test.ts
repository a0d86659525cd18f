import { describe, expect, it } from "vitest";
import { fromMarkdown, toMarkdown } from "../../src/chat/markdown";
import { fromJson, renewed, toJson, type Whole } from "../../src/chat/transfer";
import { pathOf, treeOf } from "../../src/chat/tree";
import { ROOT } from "../../src/chat/types";
import { t } from "../../src/texts";
import { anyText, conversation, message, random } from "../helpers";

const WHOLE: Whole = {
  conversation: conversation("c", {
    title: "Planets",
    named: true,
    chosen: { [ROOT]: "a", a: "b1" },
    settings: { system: "Be brief.", temperature: 0.5, topP: null, maxTokens: 100, thinking: true },
  }),
  messages: [
    message("a", null, 1, { files: [{ name: "a.txt", text: "one\ntwo" }] }),
    message("b1", "a", 2, { role: "assistant", thinking: "hm", thinkingMs: 12, finish: "stop" }),
    message("b2", "a", 3, { role: "assistant", finish: "stopped" }),
  ],
};

/** Without ids, which an import makes anew. */
function shape({ conversation: head, messages }: Whole) {
  const { id: _, chosen: __, ...rest } = head;
  const path = pathOf(treeOf(messages), head.chosen).map(({ text }) => text);
  const bare = messages.map(({ id: _, parent: __, conversation: ___, ...others }) => others);
  return { rest, path, bare };
}

describe("JSON", () => {
  it("comes back as it went, branches and settings included, under new ids", () => {
    const [back] = fromJson(toJson([WHOLE]));
    expect(shape(back!)).toEqual(shape(WHOLE));
    expect(back!.conversation.id).not.toBe("c");
    expect(back!.messages.every((one) => one.conversation === back!.conversation.id)).toBe(true);
    expect(back!.messages[1]!.parent).toBe(back!.messages[0]!.id);
  });

  it("can be imported twice", () => {
    const ids = [fromJson(toJson([WHOLE])), fromJson(toJson([WHOLE]))].map(([one]) => one!.conversation.id);
    expect(new Set(ids).size).toBe(2);
  });

  it.each([
    ["no JSON", "hello"],
    ["a list", "[]"],
    ["another program's file", '{"conversations": []}'],
  ])("refuses %s", (_, text) => {
    expect(() => fromJson(text)).toThrow(t.importForeign);
  });

  it("refuses a newer version", () => {
    expect(() => fromJson(toJson([]).replace('"version": 1', '"version": 2'))).toThrow(t.importNewer);
  });

  it.each([
    ["a ring", (whole: Whole) => (whole.messages[0]!.parent = "b1")],
    ["a message without text", (whole: Whole) => delete (whole.messages[0] as { text?: string }).text],
    ["two messages of one id", (whole: Whole) => (whole.messages[2]!.id = "b1")],
    ["a foreign role", (whole: Whole) => ((whole.messages[0] as { role: string }).role = "system")],
  ])("refuses %s, and says which conversation it is", (_, damage) => {
    const broken = structuredClone(WHOLE);
    damage(broken);
    expect(() => fromJson(toJson([WHOLE, broken]))).toThrow(t.importBroken(2));
  });
});

describe("Markdown", () => {
  it("holds the branch that is shown, to read", () => {
    const text = toMarkdown(WHOLE);
    expect(text).toContain("# Planets");
    expect(text).toContain("## You");
    expect(text).toContain("text of b1");
    expect(text).not.toContain("text of b2");
    expect(text).toContain("a.txt\n```\none\ntwo\n```");
  });

  it("holds thoughts where they are asked for", () => {
    const thought = "## Thoughts\n\nhm\n";
    expect(toMarkdown(WHOLE)).not.toContain(thought);
    expect(toMarkdown(WHOLE, { thoughts: true })).toContain(thought);
  });

  it("refuses a document that it did not write", () => {
    expect(() => fromMarkdown("# Notes\n\n## You\n\nHello", 1)).toThrow(t.importForeign);
  });

  const pieces = ["\n", "## You\n\n", "<!-- mashbox: user -->", "<!-- mashbox: thoughts -->", "\\", "x", "```\n", "# ", "\n<!-- mashbox: assistant -->\n"];

  it.each(Array.from({ length: 80 }, (_, seed) => seed))("comes back as it went (%i)", (seed) => {
    const next = random(seed);
    const text = () => `t${anyText(next, pieces)}e`;
    const whole: Whole = {
      conversation: conversation("c", { settings: { ...WHOLE.conversation.settings, system: text() } }),
      messages: [
        message("a", null, 1, { text: text() }),
        message("b", "a", 2, { role: "assistant", text: text(), thinking: text() }),
        message("c", "b", 3, { text: text() }),
      ],
    };
    const back = fromMarkdown(toMarkdown(whole, { thoughts: true }), 7);
    expect(back.messages.map((one) => [one.role, one.text, one.thinking])).toEqual(
      whole.messages.map((one) => [one.role, one.text, one.thinking]),
    );
    expect(back.conversation.settings.system).toBe(whole.conversation.settings.system);
    expect(back.conversation.title).toBe("title of c");
    expect(pathOf(treeOf(back.messages), {})).toEqual(back.messages);
  });
});

describe("renewed", () => {
  it("keeps the choice of branches", () => {
    const fresh = renewed(WHOLE);
    expect(pathOf(treeOf(fresh.messages), fresh.conversation.chosen).map(({ text }) => text)).toEqual([
      "text of a",
      "text of b1",
    ]);
  });
});
