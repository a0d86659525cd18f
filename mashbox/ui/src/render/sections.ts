import { limits } from "./limits";

/**
 * Holds an answer's blocks, some each in an element of its own: what a browser does for a frame grows with what is laid
 * out side by side, and a section that is out of sight counts as one.
 */
export class Sections {
  /** How many blocks before it, where blocks come from the end, the first section begins. */
  private first: number | null = null;

  constructor(private readonly root: Element) {}

  append(element: Element): void {
    let last = this.root.lastElementChild;
    if (!last || last.childElementCount >= limits.section) {
      last?.classList.add("md-finished");
      last = make();
      this.root.append(last);
    }
    last.append(element);
  }

  /** Adds a block before all others; `place` blocks come before it. */
  prepend(element: Element, place: number): void {
    if (this.first === null || place < this.first) {
      const section = make();
      if (this.first !== null) section.classList.add("md-finished");
      this.first = Math.floor(place / limits.section) * limits.section;
      this.root.prepend(section);
    }
    this.root.firstElementChild!.prepend(element);
  }

  clear(): void {
    this.root.replaceChildren();
    this.first = null;
  }
}

function make(): Element {
  const section = document.createElement("div");
  section.className = "md-section";
  return section;
}
