import type { Token } from "markdown-it";
import type { References } from "./blocks";
import { limits } from "./limits";
import { markdown } from "./markdown";
import { drawMaths, mathsAreLoaded } from "./maths";
import { safeHref } from "./safe-href";
import { sanitizeInPlace } from "./sanitize";
import { t } from "../texts";

/** A document that shows nothing, runs nothing and loads nothing: here an answer's elements are made. */
let workshop: Document | null = null;

function makeElement(tag: string): HTMLElement {
  workshop ??= document.implementation.createHTMLDocument("");
  return workshop.createElement(tag);
}

/** Inline content as elements below `holder`, and what it waits for. */
export interface Inline {
  holder: HTMLElement;
  /** Labels of link targets that the text asked for, defined or not. */
  labels: ReadonlySet<string>;
  /** Whether formulas are shown as source because KaTeX is not loaded yet. */
  awaitsMaths: boolean;
}

/** Draws the inline Markdown of one paragraph, heading or cell. */
export function drawInline(text: string, references: References): Inline {
  const labels = new Set<string>();
  const recorder = new Proxy(references, {
    get(target, label) {
      if (typeof label === "string") labels.add(label);
      return Reflect.get(target, label) as unknown;
    },
  });
  const tokens = markdown.parseInline(text, { references: recorder })[0]?.children ?? [];
  const holder = makeElement("div");
  const awaitsMaths = new InlineBuilder(holder).build(tokens);
  if (holder.firstElementChild) sanitizeInPlace(holder);
  return { holder, labels, awaitsMaths };
}

/** A formula's element: MathML, or its source until KaTeX is loaded and where KaTeX refuses it. */
export function drawFormula(tex: string, display: boolean): HTMLElement {
  const holder = makeElement("span");
  holder.className = display ? "md-maths-display" : "md-maths";
  const maths = drawMaths(tex, display);
  if (maths) holder.append(maths);
  else holder.append(codeElement(tex));
  return holder;
}

function codeElement(text: string): HTMLElement {
  const code = makeElement("code");
  code.textContent = text;
  return code;
}

const marks: ReadonlySet<string> = new Set(["strong", "em", "s", "sub", "sup", "kbd"]);

/** Turns a flat list of tokens into elements. Only what is named here is ever made. */
class InlineBuilder {
  private readonly path: HTMLElement[] = [];
  /** Opened beyond the depth limit: their closing tokens are skipped too. */
  private skipped = 0;
  private awaitsMaths = false;

  constructor(private readonly holder: HTMLElement) {}

  build(tokens: readonly Token[]): boolean {
    for (const token of tokens) this.add(token);
    return this.awaitsMaths;
  }

  private get current(): HTMLElement {
    return this.path.at(-1) ?? this.holder;
  }

  private add(token: Token): void {
    if (token.nesting === 1) this.open(token);
    else if (token.nesting === -1) this.close();
    else if (token.type === "text") this.current.append(token.content);
    else if (token.type === "softbreak") this.current.append("\n");
    else if (token.type === "hardbreak") this.current.append(makeElement("br"));
    else if (token.type === "code_inline") this.current.append(codeElement(token.content));
    else if (token.type === "image") this.addImage(token);
    else if (token.type === "math_inline") this.addFormula(token);
    else this.current.append(token.content);
  }

  private open(token: Token): void {
    if (this.path.length >= limits.inlineDepth) {
      this.skipped++;
      return;
    }
    const element = token.type === "link_open" ? linkElement(token) : makeElement(marks.has(token.tag) ? token.tag : "span");
    this.current.append(element);
    this.path.push(element);
  }

  private close(): void {
    if (this.skipped > 0) this.skipped--;
    else this.path.pop();
  }

  /** An image is never loaded: its address would tell another host that, and what, is being read. */
  private addImage(token: Token): void {
    const isInLink = this.path.some((element) => element.tagName === "A");
    const element = isInLink ? makeElement("span") : linkTo(token.attrGet("src"));
    const alt = markdown.renderer.renderInlineAsText(token.children ?? [], markdown.options, undefined);
    element.className = "md-image";
    element.textContent = t.image(alt);
    this.current.append(element);
  }

  private addFormula(token: Token): void {
    if (!mathsAreLoaded()) this.awaitsMaths = true;
    this.current.append(drawFormula(token.content, token.markup === "$$" || token.markup === "\\["));
  }
}

function linkElement(token: Token): HTMLElement {
  const element = linkTo(token.attrGet("href"));
  const title = token.attrGet("title");
  if (title !== null) element.setAttribute("title", String(title));
  return element;
}

/** A link that opens on a click only, in a window that learns nothing of this page; plain text if it leads nowhere safe. */
function linkTo(address: string | number | null): HTMLElement {
  const href = safeHref(String(address ?? ""));
  if (href === null) return makeElement("span");
  const link = makeElement("a");
  link.setAttribute("href", href);
  link.setAttribute("target", "_blank");
  link.setAttribute("rel", "noopener noreferrer nofollow");
  return link;
}
