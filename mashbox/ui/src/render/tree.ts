import type { Token } from "markdown-it";
import type { Block } from "./blocks";
import { limits } from "./limits";

/** A list, quote, table or the parts of a table: an element that holds other nodes. */
export interface Branch {
  kind: "branch";
  tag: string;
  /** The first number of an ordered list, or the first row of a table's part. */
  start: number | null;
  /** Children that are as they were, and stand before the others. */
  kept: number;
  children: TreeNode[];
}

/** What is drawn as one: all that is needed to see whether it is still the same. */
export interface Leaf {
  kind: "leaf";
  shape: "inline" | "code" | "rule" | "formula" | "plain";
  tag: string;
  className: string;
  /** Markdown of `inline`, TeX of `formula`, text of the others. */
  text: string;
  /** The language that a code block names. */
  info: string;
  /** Whether the box of a task is ticked; null if there is none. */
  task: boolean | null;
}

export type TreeNode = Branch | Leaf;

/** The block's tokens as a tree with one root; without what is kept of it, where that is on the page. */
export function toNode(block: Block, isThere: (kept: number) => boolean = () => false): TreeNode {
  if (block.plain) return leaf("plain", "div", block.source);
  const isTable = block.tokens[0]!.type === "table_open";
  const kept = childrenOf(block, isTable);
  const isShort = kept > 0 && isThere(kept);
  const root = grown(isShort ? [...block.tokens.slice(0, block.kept!.head), ...block.tokens.slice(block.kept!.tokens)] : block.tokens);
  if (isTable) return inParts(root as Branch, isShort ? kept : 0);
  if (isShort) (root as Branch).kept = kept;
  return root;
}

function childrenOf({ kept }: Block, isTable: boolean): number {
  return kept ? kept.items / (isTable ? limits.rows : 1) : 0;
}

function grown(tokens: readonly Token[]): TreeNode {
  const top: TreeNode[] = [];
  const open: Branch[] = [];
  tokens.forEach((token, index) => {
    const siblings = open.at(-1)?.children ?? top;
    if (branches.has(token.type)) {
      const opened = branch(token.tag, [], startOf(token));
      siblings.push(opened);
      open.push(opened);
    } else if (token.nesting === -1 && branches.has(token.type.replace("_close", "_open"))) open.pop();
    else if (token.type === "inline") {
      siblings.push(inlineLeaf(token, tokens[index - 1]!, open.at(-1)?.tag === "li" && siblings.length === 0));
    } else if (token.nesting === 0) siblings.push(ownLeaf(token));
  });
  return top[0]!;
}

/** A table in parts of some rows, each under the head: each is laid out by itself, and only while it is in sight. */
function inParts(table: Branch, kept: number): Branch {
  const [head, body] = table.children as [Branch, Branch | undefined];
  const rows = body?.children ?? [];
  const parts: Branch[] = [];
  for (let at = 0; at === 0 || at < rows.length; at += limits.rows) {
    const some = rows.slice(at, at + limits.rows);
    const children = some.length > 0 ? [head, branch("tbody", some)] : [head];
    parts.push(branch("table", children, kept * limits.rows + at + 1));
  }
  return { ...branch("div", parts), kept };
}

export function isSame(a: Leaf, b: Leaf): boolean {
  return isAlike(a, b) && a.text === b.text && a.task === b.task;
}

/** Whether the element of `a` serves for `b` too. */
export function isAlike(a: Leaf, b: Leaf): boolean {
  return a.shape === b.shape && a.tag === b.tag && a.className === b.className && a.info === b.info;
}

const branches: ReadonlySet<string> = new Set([
  "blockquote_open",
  "bullet_list_open",
  "ordered_list_open",
  "list_item_open",
  "table_open",
  "thead_open",
  "tbody_open",
  "tr_open",
]);

function branch(tag: string, children: TreeNode[], start: number | null = null): Branch {
  return { kind: "branch", tag, start, kept: 0, children };
}

function leaf(shape: Leaf["shape"], tag: string, text: string, more: Partial<Leaf> = {}): Leaf {
  return { kind: "leaf", shape, tag, className: "", text, info: "", task: null, ...more };
}

function startOf(token: Token): number | null {
  const start = token.attrGet("start");
  return start === null ? null : Number(start);
}

function ownLeaf(token: Token): Leaf {
  if (token.type === "hr") return leaf("rule", "hr", "");
  if (token.type === "math_block") return leaf("formula", "div", token.content);
  return leaf("code", "div", token.content, { info: languageOf(token.info) });
}

function languageOf(info: string): string {
  return /^[\w+#.-]{1,30}/.exec(info.trim())?.[0].toLowerCase() ?? "";
}

const taskMark = /^\[([ xX])\](?=\s)\s*/;

/** `parent` is the token that opens the element: a paragraph (hidden in a tight list), a heading or a cell. */
function inlineLeaf(token: Token, parent: Token, isFirstOfItem: boolean): Leaf {
  const tag = parent.hidden ? "div" : parent.tag;
  const className = parent.hidden ? "md-tight" : alignmentOf(parent);
  const mark = isFirstOfItem ? taskMark.exec(token.content) : null;
  const text = mark ? token.content.slice(mark[0].length) : token.content;
  const task = mark ? mark[1] !== " " : null;
  return leaf(text.length > limits.inline ? "plain" : "inline", tag, text, { className, task });
}

function alignmentOf(cell: Token): string {
  const style = cell.attrGet("style");
  return typeof style === "string" ? style.replace("text-align:", "md-") : "";
}
