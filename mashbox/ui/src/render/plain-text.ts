import { GrowingText } from "./growing-text";
import { t } from "../texts";

/** Text that is too long to be formatted, with a note that says so; laid out piece by piece as it comes into view. */
export class PlainText {
  readonly element: HTMLElement;
  private readonly growing: GrowingText;

  constructor(text: string, tag: string) {
    this.element = document.createElement(tag);
    this.element.className = "md-plain";
    const note = document.createElement("p");
    note.className = "md-note";
    note.textContent = t.plainText;
    this.element.append(note);
    this.growing = new GrowingText(this.element, 4000, () => {
      const piece = document.createElement("div");
      piece.className = "md-piece";
      return piece;
    });
    this.growing.append(text);
  }

  grow(text: string): void {
    this.growing.append(text);
  }
}
