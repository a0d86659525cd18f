import { BlockStream, type Block, type Change } from "./blocks";
import type { CodeBlock } from "./code-block";
import { drawNext, drawSoon, forget, type Drawing } from "./frames";
import { loadMaths } from "./maths";
import {
  drawMaths,
  holds,
  leavesOf,
  mountInSteps,
  patch,
  relabel,
  type Context,
  type Mounted,
  type MountedLeaf,
} from "./mount";
import { Sections } from "./sections";
import { toNode } from "./tree";

/** Work done so far, for tests that hold the cost of an update: it must not grow with the answer. */
export interface Work {
  updates: number;
  /** Paragraphs, cells, code blocks … drawn or drawn anew. */
  drawnLeaves: number;
  /** Characters given to the block rules. */
  parsedCharacters: number;
}

/** Characters taken at once: enough to be quick, few enough to stop in time; more where they are only read. */
const slice = { drawn: 1024, read: 8192 } as const;
/** Share of the time that drawing may take while the answer grows, and its longest pause in milliseconds. */
const pause = { times: 3, most: 500 } as const;
const unlabelled: ReadonlySet<string> = new Set();
/** Milliseconds that code must have been the same before it is given colours. */
const rest = 400;

/** A block of a whole text that is on its way to the page. */
interface Arriving {
  steps: Generator<void, Mounted>;
  context: Context;
  isOpen: boolean;
}

/**
 * Shows a growing Markdown text below one element.
 *
 * A text that grows is taken in slices, some each frame; what is finished is never touched again, unless a link's
 * target or KaTeX comes later. One that is whole is read first, then drawn block by block, from the end that the
 * reader is at.
 */
export class AnswerView implements Drawing {
  readonly work: Work = { updates: 0, drawnLeaves: 0, parsedCharacters: 0 };
  private text = "";
  private taken = 0;
  private isStreaming = false;
  private stream = new BlockStream();
  private open: Mounted[] = [];
  private readonly sections: Sections;
  /** Blocks of a whole text that are not on the page yet, and how many of the last are open. */
  private undrawn: Block[] = [];
  private undrawnOpen = 0;
  private arriving: Arriving | null = null;
  /** Whether a whole text is being read, before it is drawn. */
  private isReading = false;
  /** Leaves of finished blocks that may have to be drawn anew. */
  private unsettled = new Set<MountedLeaf>();
  /** Leaves that can have their formulas now. */
  private formulas: MountedLeaf[] = [];
  private readonly codes = new Map<CodeBlock, ReturnType<typeof setTimeout>>();
  private timer: ReturnType<typeof setTimeout> | null = null;
  private notBefore = 0;
  private isFetchingMaths = false;
  private isDisposed = false;

  constructor(
    readonly root: Element,
    readonly isFromEnd = false,
  ) {
    this.sections = new Sections(root);
  }

  /** Shows `text`; if it begins with what was shown before, only what came is drawn. */
  update(text: string, isStreaming: boolean): void {
    if (!text.startsWith(this.text)) this.reset();
    this.text = text;
    this.isStreaming = isStreaming;
    if (this.taken === 0 && text !== "") drawSoon(this);
    else if (this.isLeft()) this.schedule();
    if (!isStreaming) this.colourAll();
  }

  draw(end: number): boolean {
    const start = performance.now();
    this.work.updates++;
    do this.step();
    while (this.isLeft() && performance.now() < end);
    this.work.parsedCharacters = this.stream.parsed;
    const now = performance.now();
    this.notBefore = now + Math.min(pause.most, (now - start) * pause.times);
    if (!this.isLeft()) {
      if (!this.isStreaming) this.colourAll();
      return false;
    }
    if (!this.isStreaming) return true;
    this.schedule();
    return false;
  }

  /** Draws all that is left, at once. */
  flush(): void {
    this.draw(Infinity);
  }

  dispose(): void {
    this.isDisposed = true;
    this.unschedule();
    for (const timer of this.codes.values()) clearTimeout(timer);
    this.codes.clear();
  }

  private reset(): void {
    this.sections.clear();
    this.stream = new BlockStream();
    this.open = [];
    this.undrawn = [];
    this.undrawnOpen = 0;
    this.arriving = null;
    this.isReading = false;
    this.unsettled.clear();
    this.formulas = [];
    this.codes.clear();
    this.taken = 0;
  }

  private isLeft(): boolean {
    return this.taken < this.text.length || this.arriving !== null || this.undrawn.length > 0 || this.formulas.length > 0;
  }

  private schedule(): void {
    if (this.timer !== null || this.isDisposed) return;
    const wait = this.isStreaming ? this.notBefore - performance.now() : 0;
    if (wait <= 0) return drawNext(this);
    this.timer = setTimeout(() => {
      this.timer = null;
      drawNext(this);
    }, wait);
  }

  private unschedule(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    forget(this);
  }

  private step(): void {
    this.isReading ||= this.taken === 0 && !this.isStreaming;
    if (this.taken < this.text.length) {
      if (this.isReading) this.read();
      else this.take();
    } else if (this.arriving || this.undrawn.length > 0) this.drawBlock();
    else this.drawFormula();
  }

  private take(): void {
    // What comes goes behind the open blocks: they have to be there.
    while (this.undrawnOpen > 0 || this.arriving?.isOpen) this.drawBlock();
    const end = Math.min(this.text.length, this.taken + slice.drawn);
    const change = this.stream.append(this.text.slice(this.taken, end));
    this.taken = end;
    if (change.grown !== null) this.growCode(change.grown);
    else this.patch(change);
  }

  private growCode(text: string): void {
    const leaf = this.open.at(-1) as MountedLeaf;
    const code = leaf.content as CodeBlock;
    leaf.node = { ...leaf.node, text: leaf.node.text + text };
    code.grow(text);
    this.onCode(code);
  }

  private patch(change: Change): void {
    const context = this.context(change.relabelled);
    const blocks = [...change.finished, ...change.open];
    const nodes = blocks.map((block, index) => toNode(block, (kept) => holds(this.open[index], kept)));
    patch(this.sections, this.open, nodes, context);
    for (const mounted of this.open.splice(0, change.finished.length)) this.finish(mounted);
    if (change.relabelled.size > 0) for (const leaf of this.unsettled) relabel(leaf, context);
    this.note(context);
  }

  private finish(mounted: Mounted): void {
    mounted.element.classList.add("md-finished");
    for (const leaf of leavesOf(mounted)) if (leaf.labels.size > 0 || leaf.awaitsMaths) this.unsettled.add(leaf);
  }

  /** Reads some more of a whole text, of which nothing is drawn yet. */
  private read(): void {
    const end = Math.min(this.text.length, this.taken + slice.read);
    const { finished, open, grown } = this.stream.append(this.text.slice(this.taken, end));
    this.taken = end;
    this.isReading = end < this.text.length;
    if (grown !== null) {
      this.undrawn.at(-1)!.tokens[0]!.content += grown;
      return;
    }
    this.undrawn.splice(this.undrawn.length - this.undrawnOpen);
    this.undrawn.push(...finished, ...open);
    this.undrawnOpen = open.length;
  }

  /** Draws a little of the block whose turn it is. */
  private drawBlock(): void {
    const { steps, context, isOpen } = (this.arriving ??= this.nextBlock());
    const { done, value } = steps.next();
    if (!done) return;
    this.arriving = null;
    if (!isOpen) this.finish(value);
    else if (this.isFromEnd) this.open.unshift(value);
    else this.open.push(value);
    this.note(context);
  }

  private nextBlock(): Arriving {
    const isOpen = this.isFromEnd ? this.undrawnOpen > 0 : this.undrawn.length <= this.undrawnOpen;
    if (isOpen) this.undrawnOpen--;
    const block = (this.isFromEnd ? this.undrawn.pop() : this.undrawn.shift())!;
    const context = this.context(unlabelled);
    const place = this.undrawn.length;
    const put = (element: Element) => (this.isFromEnd ? this.sections.prepend(element, place) : this.sections.append(element));
    return { steps: mountInSteps(toNode(block), context, put), context, isOpen };
  }

  private context(relabelled: ReadonlySet<string>): Context {
    const references = this.stream.targets();
    return { references, relabelled, drawnLeaves: 0, awaitsMaths: false, onCode: (code) => this.onCode(code) };
  }

  private note(context: Context): void {
    this.work.drawnLeaves += context.drawnLeaves;
    if (context.awaitsMaths) this.fetchMaths();
  }

  private fetchMaths(): void {
    if (this.isFetchingMaths) return;
    this.isFetchingMaths = true;
    void loadMaths().then((isLoaded) => {
      this.isFetchingMaths = false;
      if (!isLoaded || this.isDisposed) return;
      const leaves = [...this.unsettled, ...this.open.flatMap(leavesOf)].filter((leaf) => leaf.awaitsMaths);
      this.formulas = this.isFromEnd ? leaves : leaves.reverse();
      if (this.isLeft()) this.schedule();
    });
  }

  /** Draws one formula, or piece of text with some, that waited for KaTeX. */
  private drawFormula(): void {
    const leaf = this.formulas.at(-1);
    if (!leaf) return;
    const context = this.context(unlabelled);
    if (leaf.awaitsMaths) drawMaths(leaf, context);
    this.work.drawnLeaves += context.drawnLeaves;
    if (leaf.awaitsMaths) return;
    this.formulas.pop();
    if (leaf.labels.size === 0) this.unsettled.delete(leaf);
  }

  /** Notes that a code block is new or grew. */
  private onCode(code: CodeBlock): void {
    clearTimeout(this.codes.get(code));
    this.codes.set(code, setTimeout(() => this.colour(code), rest));
  }

  private colour(code: CodeBlock): void {
    clearTimeout(this.codes.get(code));
    this.codes.delete(code);
    void code.colour();
  }

  private colourAll(): void {
    if (this.isLeft()) return;
    for (const code of [...this.codes.keys()]) this.colour(code);
  }
}
