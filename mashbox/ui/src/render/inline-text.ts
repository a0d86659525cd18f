import type { References } from "./blocks";
import { drawInline, type Inline } from "./inline";
import { limits } from "./limits";
import { piecesOf } from "./pieces";
import { makeHolder } from "./sanitize";
import { t } from "../texts";

/** A piece of the text that is on the page: its nodes, and what they wait for. */
interface Drawn {
  text: string;
  nodes: ChildNode[];
  labels: ReadonlySet<string>;
  awaitsMaths: boolean;
}

/** The inline Markdown of one element. Of a long text that grows only its last piece is drawn again. */
export class InlineText {
  private drawn: Drawn[] = [];
  /** What holds the pieces behind the first few. */
  private readonly parts: Element[] = [];
  private task: boolean | null = null;

  constructor(private readonly element: Element) {}

  /** Labels of link targets that the text asks for. */
  get labels(): ReadonlySet<string> {
    return this.drawn.length === 1 ? this.drawn[0]!.labels : new Set(this.drawn.flatMap(({ labels }) => [...labels]));
  }

  get awaitsMaths(): boolean {
    return this.drawn.some(({ awaitsMaths }) => awaitsMaths);
  }

  /** Shows `text`, behind the box of a task if it is one. Gives the number of pieces that were drawn. */
  show(text: string, task: boolean | null, references: References): number {
    const pieces = piecesOf(text);
    let same = 0;
    if (task === this.task) while (same < pieces.length && this.drawn[same]?.text === pieces[same]) same++;
    this.task = task;
    for (const { nodes } of this.drawn.splice(pieces.length)) for (const node of nodes) node.remove();
    for (const part of this.parts.splice(Math.ceil(pieces.length / limits.pieces) - 1)) part.remove();
    for (let index = same; index < pieces.length; index++) this.draw(index, pieces[index]!, references);
    return pieces.length - same;
  }

  /** Draws again the pieces that ask for one of these link targets. */
  relabel(labels: ReadonlySet<string>, references: References): number {
    return this.redraw((piece) => [...piece.labels].some((label) => labels.has(label)), references, Infinity);
  }

  /** Draws again one piece, the first, that waits for KaTeX. */
  drawMaths(references: References): number {
    return this.redraw(({ awaitsMaths }) => awaitsMaths, references, 1);
  }

  private redraw(which: (piece: Drawn) => boolean, references: References, most: number): number {
    const found = [...this.drawn.keys()].filter((index) => which(this.drawn[index]!)).slice(0, most);
    for (const index of found) this.draw(index, this.drawn[index]!.text, references);
    return found.length;
  }

  private draw(index: number, text: string, references: References): void {
    const before = this.drawn[index];
    const part = this.partOf(index);
    const isFirst = index % limits.pieces === 0 && !before;
    const holder = isFirst ? part : makeHolder();
    const inline = text.length > limits.uncut ? drawPlain(text, holder) : drawInline(text, references, holder);
    if (index === 0 && this.task !== null) holder.prepend(taskBox(this.task));
    // The sanitiser lets no names for the style sheets through.
    if (part !== this.element) part.className = "md-part";
    const nodes = isFirst ? [...holder.childNodes] : morph(part, before?.nodes ?? [], [...holder.childNodes], this.nodeBehind(index));
    this.drawn[index] = { text, nodes, ...inline };
  }

  /** The element that holds a piece: ours for the first few, further down in it one of their own for each few. */
  private partOf(index: number): Element {
    const place = Math.floor(index / limits.pieces);
    while (this.parts.length < place) {
      const part = document.createElement("span");
      this.parts.push(part);
      this.element.append(part);
    }
    if (place === 0) return this.element;
    return this.parts[place - 1]!;
  }

  private nodeBehind(index: number): ChildNode | null {
    const place = Math.floor(index / limits.pieces);
    const others = this.drawn.slice(index + 1, (place + 1) * limits.pieces);
    const own = others.find(({ nodes }) => nodes.length > 0)?.nodes[0];
    return own ?? (place === 0 ? ((this.parts[0] as ChildNode | undefined) ?? null) : null);
  }
}

/** What can't be cut, and is too long to be drawn again and again. */
function drawPlain(text: string, holder: Element): Inline {
  const note = document.createElement("span");
  note.className = "md-note";
  note.textContent = t.plainText;
  holder.append(note, text);
  return { labels: new Set(), awaitsMaths: false };
}

function taskBox(isDone: boolean): Element {
  const box = document.createElement("span");
  box.className = isDone ? "md-task md-done" : "md-task";
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", isDone ? t.taskDone : t.taskOpen);
  return box;
}

/**
 * Puts `fresh` in the place of `old`, children of `element` that stand before `behind`. Those from the first that are
 * equal stay, so that a selection in them does. Gives what stands there now.
 */
function morph(element: Element, old: readonly ChildNode[], fresh: readonly ChildNode[], behind: ChildNode | null): ChildNode[] {
  let same = 0;
  while (same < old.length && same < fresh.length && old[same]!.isEqualNode(fresh[same]!)) same++;
  const [grown, longer] = [old[same], fresh[same]];
  if (grown instanceof Text && longer?.nodeType === Node.TEXT_NODE && longer.nodeValue!.startsWith(grown.data)) {
    grown.appendData(longer.nodeValue!.slice(grown.length));
    same++;
  }
  for (const node of old.slice(same)) node.remove();
  for (const node of fresh.slice(same)) element.insertBefore(node, behind);
  return [...old.slice(0, same), ...fresh.slice(same)];
}
