import type { References } from "./blocks";
import { CodeBlock } from "./code-block";
import { limits } from "./limits";
import { drawFormula } from "./inline";
import { InlineText } from "./inline-text";
import { mathsAreLoaded } from "./maths";
import { PlainText } from "./plain-text";
import { t } from "../texts";
import { isAlike, isSame, type Branch, type Leaf, type TreeNode } from "./tree";

/** A node that is on the page. */
export type Mounted = MountedBranch | MountedLeaf;

export interface MountedBranch {
  node: Branch;
  /** Stands in the parent; `holder`, the same or below it, holds the children. */
  element: Element;
  holder: Element;
  children: Mounted[];
}

export interface MountedLeaf {
  node: Leaf;
  element: Element;
  /** What draws the text; null for rules and formulas. */
  content: CodeBlock | PlainText | InlineText | null;
  labels: ReadonlySet<string>;
  awaitsMaths: boolean;
}

/** What drawing needs to know, and counts of what it did. */
export interface Context {
  references: References;
  relabelled: ReadonlySet<string>;
  drawnLeaves: number;
  /** Whether a leaf was drawn that waits for KaTeX. */
  awaitsMaths: boolean;
  onCode: (code: CodeBlock) => void;
}

/** Makes what is mounted below `holder`, behind the first `kept`, show `nodes`, drawing only what differs. */
export function patch(holder: Pick<Element, "append">, mounted: Mounted[], nodes: readonly TreeNode[], context: Context, kept = 0): void {
  nodes.forEach((node, index) => {
    const before = mounted[kept + index];
    if (before && update(before, node, context)) return;
    const after = mount(node, context);
    if (before) before.element.replaceWith(after.element);
    else holder.append(after.element);
    mounted[kept + index] = after;
  });
  for (const extra of mounted.splice(kept + nodes.length)) extra.element.remove();
}

/** Whether `mounted` has this many children, so that they can stay as they are. */
export function holds(mounted: Mounted | undefined, kept: number): boolean {
  return mounted !== undefined && !isLeaf(mounted) && mounted.children.length >= kept;
}

/** All leaves at and below `mounted`. */
export function leavesOf(mounted: Mounted): MountedLeaf[] {
  return isLeaf(mounted) ? [mounted] : mounted.children.flatMap(leavesOf);
}

/** Draws again what of a leaf asks for link targets that have changed. */
export function relabel(leaf: MountedLeaf, context: Context): void {
  if (!(leaf.content instanceof InlineText) || !intersects(leaf.labels, context.relabelled)) return;
  noteDrawn(leaf, leaf.content.relabel(context.relabelled, context.references), context);
}

/** Draws one formula, or piece of a paragraph with some, that waits for KaTeX. */
export function drawMaths(leaf: MountedLeaf, context: Context): void {
  if (leaf.content instanceof InlineText) noteDrawn(leaf, leaf.content.drawMaths(context.references), context);
  else fill(leaf, context);
}

function isLeaf(mounted: Mounted): mounted is MountedLeaf {
  return mounted.node.kind === "leaf";
}

/** True if `mounted` shows `node` now; false if it must be replaced. */
function update(mounted: Mounted, node: TreeNode, context: Context): boolean {
  if (isLeaf(mounted)) return node.kind === "leaf" && updateLeaf(mounted, node, context);
  if (node.kind === "leaf" || node.tag !== mounted.node.tag || node.start !== mounted.node.start) return false;
  patch(mounted.holder, mounted.children, node.children, context, node.kept);
  settleParts(mounted, node.kept);
  mounted.node = node;
  return true;
}

function updateLeaf(mounted: MountedLeaf, node: Leaf, context: Context): boolean {
  const before = mounted.node;
  if (isSame(before, node)) {
    relabel(mounted, context);
    return true;
  }
  if (!isAlike(before, node)) return false;
  const { content } = mounted;
  const grows = content instanceof CodeBlock || content instanceof PlainText;
  if (grows) {
    if (!node.text.startsWith(before.text)) return false;
    content.grow(node.text.slice(before.text.length));
    if (content instanceof CodeBlock) context.onCode(content);
  }
  mounted.node = node;
  relabel(mounted, context);
  if (!grows) fill(mounted, context);
  return true;
}

function intersects(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  if (b.size === 0) return false;
  for (const item of a) if (b.has(item)) return true;
  return false;
}

function mount(node: TreeNode, context: Context): Mounted {
  const steps = mountInSteps(node, context, () => undefined);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Mounts a node a little at a time. `put` is given its element, which then grows; what is mounted comes at the end. */
export function* mountInSteps(node: TreeNode, context: Context, put: (element: Element) => void): Generator<void, Mounted> {
  if (node.kind === "branch") return yield* mountBranch(node, context, put);
  const first = node.shape === "inline" && node.text.length > step ? { ...node, text: node.text.slice(0, step) } : node;
  const mounted = mountLeaf(first, context);
  put(mounted.element);
  yield;
  for (let end = 2 * step; mounted.node.text.length < node.text.length; end += step) {
    updateLeaf(mounted, { ...node, text: node.text.slice(0, end) }, context);
    yield;
  }
  return mounted;
}

/** Characters of a long paragraph that are drawn at once. */
const step = limits.piece;

function* mountBranch(node: Branch, context: Context, put: (element: Element) => void): Generator<void, Mounted> {
  const holder = document.createElement(node.tag);
  if (node.tag === "ol" && node.start !== null) holder.setAttribute("start", String(node.start));
  const element = node.tag === "table" ? scrollBox(holder, node.start ?? 1) : holder;
  const mounted: MountedBranch = { node, element, holder, children: [] };
  put(element);
  for (const child of node.children) mounted.children.push(yield* mountInSteps(child, context, (made) => holder.append(made)));
  settleParts(mounted, 0);
  return mounted;
}

/** Parts of a table before its last one are finished. */
function settleParts({ node, children }: MountedBranch, kept: number): void {
  if (node.tag !== "div") return;
  for (const part of children.slice(Math.max(0, kept - 1), -1)) part.element.classList.add("md-finished");
}

/** A wide table scrolls inside its box, which the keyboard must reach. */
function scrollBox(table: Element, firstRow: number): Element {
  const box = document.createElement("div");
  box.className = "md-table";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", firstRow === 1 ? t.table : t.tableFrom(firstRow));
  box.append(table);
  return box;
}

function mountLeaf(node: Leaf, context: Context): MountedLeaf {
  const whole = wholeOf(node);
  const element = whole?.element ?? document.createElement(elementTag(node));
  const content = whole ?? (node.shape === "inline" ? new InlineText(element) : null);
  const mounted: MountedLeaf = { node, element, content, labels: new Set(), awaitsMaths: false };
  if (whole) context.drawnLeaves++;
  else fill(mounted, context);
  if (!whole && node.className !== "") element.className = node.className;
  if (whole instanceof CodeBlock) context.onCode(whole);
  return mounted;
}

/** What makes its own element. */
function wholeOf(node: Leaf): CodeBlock | PlainText | null {
  if (node.shape === "code") return new CodeBlock(node.text, node.info);
  return node.shape === "plain" ? new PlainText(node.text, plainTag(node.tag)) : null;
}

function plainTag(tag: string): string {
  return tag === "td" || tag === "th" ? tag : "div";
}

/** An answer's headings stand below those of the page. */
function elementTag(node: Leaf): string {
  const level = /^h([1-6])$/.exec(node.tag)?.[1];
  return level ? `h${Math.min(6, Number(level) + 2)}` : node.tag;
}

function fill(mounted: MountedLeaf, context: Context): void {
  const { node, element, content } = mounted;
  if (content instanceof InlineText) {
    noteDrawn(mounted, content.show(node.text, node.task, context.references), context);
    return;
  }
  context.drawnLeaves++;
  if (node.shape !== "formula") return;
  mounted.awaitsMaths = !mathsAreLoaded();
  context.awaitsMaths ||= mounted.awaitsMaths;
  element.replaceChildren();
  drawFormula(node.text, true, element);
}

function noteDrawn(leaf: MountedLeaf, count: number, context: Context): void {
  const { labels, awaitsMaths } = leaf.content as InlineText;
  Object.assign(leaf, { labels, awaitsMaths });
  context.drawnLeaves += count;
  context.awaitsMaths ||= awaitsMaths;
}
