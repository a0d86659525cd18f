import { AnswerView } from "../../src/render/view";

/** A view on an element of the page, fed piece by piece. */
export class Shown {
  readonly root = document.createElement("div");
  readonly view = new AnswerView(this.root);
  private text = "";

  constructor(...pieces: string[]) {
    this.root.className = "md-answer";
    document.body.append(this.root);
    for (const piece of pieces) this.add(piece);
  }

  add(piece: string): this {
    this.text += piece;
    this.view.update(this.text, true);
    this.view.flush();
    return this;
  }

  finish(): this {
    this.view.update(this.text, false);
    return this;
  }

  get html(): string {
    return contentOf(this.root);
  }
}

/** Without sections and the mark of what is finished, which may be known sooner or later: they change nothing that is seen. */
export function contentOf(root: Element): string {
  const inner = [...root.children].map((section) => section.innerHTML).join("");
  return inner.replace(/ class="md-finished"| md-finished/g, "");
}

export function htmlOf(text: string): string {
  return new Shown(text).html;
}
