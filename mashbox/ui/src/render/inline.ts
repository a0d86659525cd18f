import type { Token } from "markdown-it";
import type { References } from "./blocks";
import { limits } from "./limits";
import { markdown } from "./markdown";
import { drawMaths, mathsAreLoaded } from "./maths";
import { safeHref } from "./safe-href";
import { sanitizeInPlace } from "./sanitize";
import { t } from "../texts";

function makeElement(tag: string): HTMLElement {
  return document.createElement(tag);
}

/** What a piece of inline content asked for and waits for. */
export interface Inline {
  /** Labels of link targets that the text asked for, defined or not. */
  labels: ReadonlySet<string>;
  /** Whether formulas are shown as source because KaTeX is not loaded yet. */
  awaitsMaths: boolean;
}

/**
 * Draws the inline Markdown of one paragraph, heading or cell into `holder`, which is empty and not on the page.
 *
 * Elements are not moved out of what DOMPurify went through: each of its iterators would have to hear of it.
 */
export function drawInline(text: string, references: References, holder: Element): Inline {
  const labels = new Set<string>();
  const recorder = new Proxy(references, {
    get(target, label) {
      if (typeof label === "string") labels.add(label);
      return Reflect.get(target, label) as unknown;
    },
  });
  const tokens = markdown.parseInline(text, { references: recorder })[0]?.children ?? [];
  const builder = new InlineBuilder(holder);
  builder.build(tokens);
  if (holder.firstElementChild) sanitizeInPlace(holder);
  builder.dress();
  return { labels, awaitsMaths: builder.awaitsMaths };
}

/** Puts a formula into `holder`: MathML, or its source until KaTeX is loaded and where KaTeX refuses it. */
export function drawFormula(tex: string, display: boolean, holder: Element): void {
  holder.className = display ? "md-maths-display" : "md-maths";
  holder.append(drawMaths(tex, display) ?? codeElement(tex));
}

function codeElement(text: string): HTMLElement {
  const code = makeElement("code");
  code.textContent = text;
  return code;
}

const marks: ReadonlySet<string> = new Set(["strong", "em", "s", "sub", "sup", "kbd"]);

/** Turns a flat list of tokens into elements. Only what is named here is ever made. */
class InlineBuilder {
  private readonly path: Element[] = [];
  /** Opened beyond the depth limit: their closing tokens are skipped too. */
  private skipped = 0;
  private readonly afterwards: (() => void)[] = [];
  awaitsMaths = false;

  constructor(private readonly holder: Element) {}

  build(tokens: readonly Token[]): void {
    for (const token of tokens) this.add(token);
  }

  /** Adds what is ours or has been sanitised itself, once the rest is: names for the style sheets, formulas. */
  dress(): void {
    for (const step of this.afterwards) step();
  }

  private get current(): Element {
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
    element.textContent = t.image(alt);
    this.current.append(element);
    this.afterwards.push(() => (element.className = "md-image"));
  }

  private addFormula(token: Token): void {
    if (!mathsAreLoaded()) this.awaitsMaths = true;
    const place = makeElement("span");
    this.current.append(place);
    const isDisplay = token.markup === "$$" || token.markup === "\\[";
    this.afterwards.push(() => drawFormula(token.content, isDisplay, place));
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
