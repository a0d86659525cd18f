import { limits } from "./limits";
import { GrowingText } from "./growing-text";
import { colour, type Run } from "./highlight";
import { t } from "../texts";

/** Code with its language, a button to copy it, and colours when it rests. */
export class CodeBlock {
  readonly element: HTMLElement;
  private readonly code: HTMLElement;
  private growing: GrowingText;
  private isColoured = false;

  constructor(
    private text: string,
    private readonly language: string,
  ) {
    this.element = make("div", "md-code");
    const bar = make("div", "md-code-bar");
    const label = make("span", "md-code-label");
    label.textContent = language === "" ? t.code : language;
    const button = make("button", "md-copy");
    button.setAttribute("type", "button");
    button.setAttribute("aria-label", t.copyCode);
    button.textContent = t.copy;
    bar.append(label, button);
    const pre = make("pre", "");
    // Long lines scroll inside the box, and so must be within the keyboard's reach.
    pre.tabIndex = 0;
    this.code = make("code", "");
    pre.append(this.code);
    this.element.append(bar, pre);
    this.growing = this.fill(text);
  }

  grow(text: string): void {
    this.text += text;
    if (this.isColoured) this.growing = this.fill(this.text);
    else this.growing.append(text);
  }

  /** Fetches colours and puts them on, if the text is still the same by then. */
  async colour(): Promise<void> {
    const { text } = this;
    if (this.isColoured || this.language === "" || text.length > limits.highlight) return;
    const runs = await colour(text, this.language);
    if (!runs || this.text !== text || !this.element.isConnected) return;
    this.code.replaceChildren(...runs.map(spanOf));
    this.isColoured = true;
  }

  private fill(text: string): GrowingText {
    this.isColoured = false;
    this.code.replaceChildren();
    const growing = new GrowingText(this.code, 4096);
    growing.append(text);
    return growing;
  }
}

/** What the copy button of a code block copies. */
export function codeOf(button: Element): string | null {
  const code = button.closest(".md-code")?.querySelector("pre > code");
  return code ? code.textContent.replace(/\n$/, "") : null;
}

function spanOf([text, scope]: Run): Node {
  if (scope === "") return document.createTextNode(text);
  const span = make("span", `hl-${scope}`);
  span.textContent = text;
  return span;
}

function make(tag: string, className: string): HTMLElement {
  const element = document.createElement(tag);
  if (className !== "") element.className = className;
  return element;
}
