import { BlockStream, type Change } from "./blocks";
import type { CodeBlock } from "./code-block";
import { loadMaths } from "./maths";
import { holds, leavesOf, patch, redraw, type Context, type Mounted, type MountedLeaf } from "./mount";
import { toNode } from "./tree";

/** Work done so far, for tests that hold the cost of an update: it must not grow with the answer. */
export interface Work {
  updates: number;
  /** Paragraphs, cells, code blocks … drawn or drawn anew. */
  drawnLeaves: number;
  /** Characters given to the block rules. */
  parsedCharacters: number;
}

/** Milliseconds of work after which the page gets its turn. */
const budget = { first: 16, frame: 8 } as const;
/** Characters taken at once: enough to be quick, few enough to stop in time. */
const slice = 1024;
/** Share of the time that drawing may take while the answer grows, and its longest pause in milliseconds. */
const pause = { times: 3, most: 500 } as const;
const unlabelled: ReadonlySet<string> = new Set();
/** Milliseconds that code must have been the same before it is given colours. */
const rest = 400;

/**
 * Shows a growing Markdown text below one element.
 *
 * Text is taken in slices, some each animation frame; what is finished is never touched again, unless a link's
 * target or KaTeX comes later.
 */
export class AnswerView {
  readonly work: Work = { updates: 0, drawnLeaves: 0, parsedCharacters: 0 };
  private text = "";
  private taken = 0;
  private isStreaming = false;
  private stream = new BlockStream();
  private open: Mounted[] = [];
  /** Leaves of finished blocks that may have to be drawn anew. */
  private unsettled = new Set<MountedLeaf>();
  private readonly codes = new Map<CodeBlock, ReturnType<typeof setTimeout>>();
  private cancelTurn: (() => void) | null = null;
  private notBefore = 0;
  private isFetchingMaths = false;
  private isDisposed = false;

  constructor(private readonly root: Element) {}

  /** Shows `text`; if it begins with what was shown before, only what came is drawn. */
  update(text: string, isStreaming: boolean): void {
    if (!text.startsWith(this.text)) this.reset();
    this.text = text;
    this.isStreaming = isStreaming;
    if (this.taken === 0) this.run(budget.first);
    else if (this.taken < text.length) this.schedule();
    if (!isStreaming) this.colourAll();
  }

  /** Draws all that is left, at once. */
  flush(): void {
    this.run(Infinity);
  }

  dispose(): void {
    this.isDisposed = true;
    this.cancelTurn?.();
    for (const timer of this.codes.values()) clearTimeout(timer);
    this.codes.clear();
  }

  private reset(): void {
    this.root.replaceChildren();
    this.stream = new BlockStream();
    this.open = [];
    this.unsettled.clear();
    this.codes.clear();
    this.taken = 0;
  }

  private schedule(): void {
    if (this.cancelTurn || this.isDisposed) return;
    const turn = () => {
      this.cancelTurn = null;
      if (this.isStreaming && performance.now() < this.notBefore) this.schedule();
      else this.run(budget.frame);
    };
    const wait = this.isStreaming ? this.notBefore - performance.now() : 0;
    if (wait > 20) {
      const timer = setTimeout(turn, wait);
      this.cancelTurn = () => clearTimeout(timer);
    } else {
      const frame = requestAnimationFrame(turn);
      this.cancelTurn = () => cancelAnimationFrame(frame);
    }
  }

  private run(milliseconds: number): void {
    const start = performance.now();
    this.work.updates++;
    do {
      const end = Math.min(this.text.length, this.taken + slice);
      const piece = this.text.slice(this.taken, end);
      this.taken = end;
      this.apply(this.stream.append(piece));
    } while (this.taken < this.text.length && performance.now() - start < milliseconds);
    this.work.parsedCharacters = this.stream.parsed;
    const now = performance.now();
    this.notBefore = now + Math.min(pause.most, (now - start) * pause.times);
    if (this.taken < this.text.length) this.schedule();
    else if (!this.isStreaming) this.colourAll();
  }

  private apply(change: Change): void {
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
    patch(this.root, this.open, nodes, context);
    for (const mounted of this.open.splice(0, change.finished.length)) {
      mounted.element.classList.add("md-finished");
      for (const leaf of leavesOf(mounted)) if (leaf.labels.size > 0 || leaf.awaitsMaths) this.unsettled.add(leaf);
    }
    if (change.relabelled.size > 0) this.relabel(change.relabelled, context);
    this.work.drawnLeaves += context.drawnLeaves;
    if (context.awaitsMaths) this.fetchMaths();
  }

  private context(relabelled: ReadonlySet<string>): Context {
    const references = this.stream.targets();
    return { references, relabelled, drawnLeaves: 0, awaitsMaths: false, onCode: (code) => this.onCode(code) };
  }

  private relabel(labels: ReadonlySet<string>, context: Context): void {
    for (const leaf of this.unsettled) {
      if ([...leaf.labels].some((label) => labels.has(label))) redraw(leaf, context);
    }
  }

  private leaves(): MountedLeaf[] {
    return [...this.unsettled, ...this.open.flatMap(leavesOf)];
  }

  private fetchMaths(): void {
    if (this.isFetchingMaths) return;
    this.isFetchingMaths = true;
    void loadMaths().then((isLoaded) => {
      this.isFetchingMaths = false;
      if (isLoaded) this.drawFormulas();
    });
  }

  /** Draws what waited for KaTeX, some each frame. */
  private drawFormulas(): void {
    if (this.isDisposed) return;
    const context = this.context(unlabelled);
    const end = performance.now() + budget.frame;
    const waiting = this.leaves().filter((leaf) => leaf.awaitsMaths);
    for (const [index, leaf] of waiting.entries()) {
      if (index > 0 && performance.now() > end) {
        requestAnimationFrame(() => this.drawFormulas());
        break;
      }
      redraw(leaf, context);
      if (leaf.labels.size === 0) this.unsettled.delete(leaf);
    }
    this.work.drawnLeaves += context.drawnLeaves;
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
    if (this.taken < this.text.length) return;
    for (const code of [...this.codes.keys()]) this.colour(code);
  }
}
