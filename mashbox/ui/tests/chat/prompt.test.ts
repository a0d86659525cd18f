import { describe, expect, it } from "vitest";
import { apiMessages, chatBody, contentOf } from "../../src/chat/prompt";
import { titleOf } from "../../src/chat/title";
import { PLAIN } from "../../src/chat/types";
import { message } from "../helpers";

describe("chatBody", () => {
  it("leaves out what is not set", () => {
    const body = chatBody([message("a", null, 1)], PLAIN, "c");
    expect(body).toEqual({ messages: [{ role: "user", content: "text of a" }], prompt_cache_key: "c" });
  });

  it("carries the settings, zero among them", () => {
    const settings = { system: "s", temperature: 0, topP: 0.5, maxTokens: 9, thinking: true };
    expect(chatBody([message("a", null, 1)], settings, "c")).toMatchObject({
      messages: [{ role: "system", content: "s" }, { role: "user" }],
      temperature: 0,
      top_p: 0.5,
      max_tokens: 9,
      chat_template_kwargs: { enable_thinking: true },
    });
  });
});

describe("what the model's makers recommend", () => {
  it("holds where the settings leave a field open", () => {
    const recommended = { temperature: 0.7, top_p: 0.8, top_k: 20 };
    const body = chatBody([message("a", null, 1)], { ...PLAIN, temperature: 0 }, "c", recommended);
    expect(body).toMatchObject({ temperature: 0, top_p: 0.8, top_k: 20 });
  });
});

describe("apiMessages", () => {
  it("leaves out answers without a word and gives thoughts back", () => {
    const path = [
      message("a", null, 1),
      message("b", "a", 2, { role: "assistant", text: "", finish: "broken" }),
      message("c", "b", 3, { role: "assistant", text: "yes", thinking: "hm" }),
    ];
    expect(apiMessages(path, " ")).toEqual([
      { role: "user", content: "text of a" },
      { role: "assistant", content: "yes", reasoning_content: "hm" },
    ]);
  });
});

describe("contentOf", () => {
  it("puts files before the text, in fences that they can't close", () => {
    const files = [{ name: "a.md", text: "x\n````\ny\n" }];
    expect(contentOf({ text: "Why?", files })).toBe("a.md\n`````\nx\n````\ny\n`````\n\nWhy?");
  });
});

describe("titleOf", () => {
  it("is the first line with words, without marks", () => {
    expect(titleOf({ text: "\n## **Bold** `code`\nmore" })).toBe("Bold code");
  });

  it("is cut between words", () => {
    const title = titleOf({ text: "word ".repeat(40) });
    expect(title).toMatch(/^(word )+word…$/);
    expect(title.length).toBeLessThanOrEqual(61);
  });

  it("falls back on a file's name", () => {
    expect(titleOf({ text: "", files: [{ name: "a.txt", text: "x" }] })).toBe("a.txt");
  });
});
