import type { References } from "./blocks";
import { CodeBlock } from "./code-block";
import { drawFormula, drawInline } from "./inline";
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
  content: CodeBlock | PlainText | null;
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
export function patch(holder: Element, mounted: Mounted[], nodes: readonly TreeNode[], context: Context, kept = 0): void {
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

/** Draws a leaf's text anew: a link target or KaTeX has come. */
export function redraw(leaf: MountedLeaf, context: Context): void {
  fill(leaf, context);
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
    if (intersects(mounted.labels, context.relabelled)) fill(mounted, context);
    return true;
  }
  if (!isAlike(before, node)) return false;
  if (mounted.content) {
    if (!node.text.startsWith(before.text)) return false;
    mounted.content.grow(node.text.slice(before.text.length));
    if (mounted.content instanceof CodeBlock) context.onCode(mounted.content);
  }
  mounted.node = node;
  if (!mounted.content) fill(mounted, context);
  return true;
}

function intersects(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  if (b.size === 0) return false;
  for (const item of a) if (b.has(item)) return true;
  return false;
}

function mount(node: TreeNode, context: Context): Mounted {
  return node.kind === "branch" ? mountBranch(node, context) : mountLeaf(node, context);
}

function mountBranch(node: Branch, context: Context): MountedBranch {
  const holder = document.createElement(node.tag);
  if (node.tag === "ol" && node.start !== null) holder.setAttribute("start", String(node.start));
  const element = node.tag === "table" ? scrollBox(holder, node.start ?? 1) : holder;
  const mounted: MountedBranch = { node, element, holder, children: [] };
  patch(holder, mounted.children, node.children, context);
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
  const content = contentOf(node);
  const element = content?.element ?? document.createElement(elementTag(node));
  const mounted: MountedLeaf = { node, element, content, labels: new Set(), awaitsMaths: false };
  if (content) context.drawnLeaves++;
  else fill(mounted, context);
  if (!content && node.className !== "") element.className = node.className;
  if (content instanceof CodeBlock) context.onCode(content);
  return mounted;
}

function contentOf(node: Leaf): CodeBlock | PlainText | null {
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
  const { node, element } = mounted;
  context.drawnLeaves++;
  if (node.shape === "rule") return;
  if (node.shape === "formula") {
    mounted.awaitsMaths = !mathsAreLoaded();
    context.awaitsMaths ||= mounted.awaitsMaths;
    element.replaceChildren();
    drawFormula(node.text, true, element);
    return;
  }
  const isFirst = !element.hasChildNodes();
  const holder = isFirst ? element : document.createElement("div");
  Object.assign(mounted, drawInline(node.text, context.references, holder));
  context.awaitsMaths ||= mounted.awaitsMaths;
  if (node.task !== null) holder.prepend(taskBox(node.task));
  if (!isFirst) morph(element, holder);
}

function taskBox(isDone: boolean): Element {
  const box = document.createElement("span");
  box.className = isDone ? "md-task md-done" : "md-task";
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", isDone ? t.taskDone : t.taskOpen);
  return box;
}

/** Gives `element` the children of `drawn`; those from the first that are equal stay, so that a selection in them does. */
function morph(element: Element, drawn: Element): void {
  let old = element.firstChild;
  let fresh = drawn.firstChild;
  while (old && fresh && old.isEqualNode(fresh)) {
    old = old.nextSibling;
    fresh = fresh.nextSibling;
  }
  if (old instanceof Text && fresh && fresh.nodeType === Node.TEXT_NODE && fresh.nodeValue!.startsWith(old.data)) {
    old.appendData(fresh.nodeValue!.slice(old.length));
    old = old.nextSibling;
    fresh = fresh.nextSibling;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
  while (fresh) {
    const next = fresh.nextSibling;
    element.append(fresh);
    fresh = next;
  }
}
