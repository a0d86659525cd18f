import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { toRuns } from "../../src/render/highlight-runs";
import { languageName, languageNames } from "../../src/render/language-names";

describe("runs of code", () => {
  it("make up the code and name what it is", async () => {
    const code = 'def f(x):\n    """<b>&amp;\'"""\n    return x < 1  # done\n';
    const runs = (await toRuns(code, "py"))!;
    expect(runs.map(([text]) => text).join("")).toBe(code);
    expect(runs).toContainEqual(["def", "keyword"]);
    expect(runs).toContainEqual(["# done", "comment"]);
  });

  it("make up the code where a language stands inside another", async () => {
    const code = '<style>a { color: red }</style><script>let a = `${1 < 2}`;</script>\n<p class="x">&lt;</p>';
    const runs = (await toRuns(code, "html"))!;
    expect(runs.map(([text]) => text).join("")).toBe(code);
    expect(runs).toContainEqual(["let", "keyword"]);
  });

  it("are there for every language that is named, and for no other", async () => {
    for (const name of languageNames) {
      const runs = await toRuns("if x == 1: 'a' <b> & \"c\" # d", name);
      expect(runs!.map(([text]) => text).join(""), name).toBe("if x == 1: 'a' <b> & \"c\" # d");
    }
    expect(await toRuns("x", "klingon")).toBeNull();
    for (const name of ["", "__proto__", "constructor", "toString"]) expect(languageName(name)).toBeNull();
    expect(languageName("c++")).toBe("cpp");
  });
});

describe("colours of code", () => {
  const css = readFileSync(new URL("../../src/render/highlight.css", import.meta.url), "utf8");
  const pairs = new Map([...css.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map((found) => [found[1]!, found]));
  const ground = pairs.get("code-ground")!;

  it.each([...pairs.keys()].filter((name) => name !== "code-ground"))("%s can be read on their ground, light and dark", (name) => {
    const colour = pairs.get(name)!;
    for (const theme of [2, 3]) expect(contrast(colour[theme]!, ground[theme]!)).toBeGreaterThanOrEqual(4.5);
  });

  it("are there for most of what highlight.js finds", () => {
    expect(pairs.size).toBeGreaterThan(7);
    for (const scope of ["keyword", "string", "number", "title", "comment", "built_in", "type", "attr"]) expect(css).toContain(`.hl-${scope}`);
  });
});

/** Contrast ratio after WCAG 2.2. */
function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light! + 0.05) / (dark! + 0.05);
}

function luminance(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}
