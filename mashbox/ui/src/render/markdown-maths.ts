import type { MarkdownIt, StateBlock, StateInline } from "markdown-it";
import { limits } from "./limits";

/**
 * Maths for markdown-it: `$…$`, `\(…\)`, `$$…$$` and `\[…\]` give `math_inline` tokens (`markup` is the opening mark),
 * a formula in lines of its own a `math_block`. `content` is TeX.
 *
 * Every rule looks ahead no further than the next empty line, so that what stands before one is never read anew.
 */
export function maths(md: MarkdownIt): void {
  // Before `escape`, which would take the backslash of `\(`.
  md.inline.ruler.before("escape", "math_inline", inlineRule);
  md.block.ruler.before("fence", "math_block", blockRule, { alt: ["paragraph", "reference", "blockquote"] });
}

const closers: Readonly<Record<string, string>> = { "$$": "$$", $: "$", "\\(": "\\)", "\\[": "\\]" };

function inlineRule(state: StateInline, silent: boolean): boolean {
  const open = openerAt(state.src, state.pos);
  if (open === "") return false;
  const start = state.pos + open.length;
  const limit = Math.min(state.posMax, start + limits.inlineFormula);
  const end = open === "$" ? findDollar(state.src, state.pos, limit) : findCloser(state.src, start, limit, closers[open]!);
  if (end < 0) return false;
  const content = state.src.slice(start, end).trim();
  if (content === "" || (open !== "$$" && isProse(content, open))) return false;
  if (!silent) {
    const token = state.push("math_inline", "math", 0);
    token.content = content;
    token.markup = open;
  }
  state.pos = end + closers[open]!.length;
  return true;
}

function openerAt(src: string, pos: number): string {
  const first = src.charCodeAt(pos);
  if (first === 0x24 /* $ */) return src.charCodeAt(pos + 1) === 0x24 ? "$$" : "$";
  if (first !== 0x5c /* \ */) return "";
  const second = src[pos + 1];
  return second === "(" ? "\\(" : second === "[" ? "\\[" : "";
}

function findCloser(src: string, from: number, limit: number, closer: string): number {
  for (let pos = from; pos < limit; pos++) {
    if (src.startsWith(closer, pos)) return pos;
    if (src.charCodeAt(pos) === 0x5c) pos++;
  }
  return -1;
}

/** The end of `$…$`: marks hug their formula, and neither touches a word or a number on its outer side. */
function findDollar(src: string, open: number, limit: number): number {
  if (isWordAt(src, open - 1) || isBlankAt(src, open + 1)) return -1;
  for (let pos = open + 1; pos < limit; pos++) {
    const code = src.charCodeAt(pos);
    if (code === 0x5c) pos++;
    else if (code === 0x24) return isBlankAt(src, pos - 1) || isWordAt(src, pos + 1) ? -1 : pos;
  }
  return -1;
}

function isBlankAt(src: string, pos: number): boolean {
  return pos >= src.length || /\s/.test(src[pos]!);
}

function isWordAt(src: string, pos: number): boolean {
  return pos >= 0 && pos < src.length && /[\p{L}\p{N}$]/u.test(src[pos]!);
}

/** Sums of money and escaped brackets around words: "$5, or US$", "\(see above\)". */
function isProse(content: string, open: string): boolean {
  if (/[\\^_={}<>+*/|]/.test(content)) return false;
  if (open === "$") return /^\d[\d.,]*\s*[^\d\s]*\s.*\p{L}{2,}|^\d[\d.,]*[,;:]?\s+\p{L}/u.test(content);
  return /^\p{L}{2,}([\s,.;:!?'’-]+\p{L}+)*[.!?]?$/u.test(content);
}

function blockRule(state: StateBlock, startLine: number, endLine: number, silent: boolean): boolean {
  if (state.sCount[startLine]! - state.blkIndent >= 4) return false;
  const start = state.bMarks[startLine]! + state.tShift[startLine]!;
  const open = state.src.startsWith("$$", start) ? "$$" : state.src.startsWith("\\[", start) ? "\\[" : "";
  if (open === "") return false;
  const end = findBlockEnd(state, startLine, endLine, open);
  if (!end) return false;
  if (silent) return true;
  const token = state.push("math_block", "math", 0);
  token.content = end.content;
  token.markup = open;
  token.map = [startLine, end.line + 1];
  state.line = end.line + 1;
  return true;
}

/** The last line of the block and its TeX, or null if nothing closes it before an empty line, a code fence or less indent. */
function findBlockEnd(state: StateBlock, startLine: number, endLine: number, open: string) {
  const closer = closers[open]!;
  const last = Math.min(endLine, startLine + limits.formulaLines);
  const lines: string[] = [];
  let length = 0;
  for (let line = startLine; line < last; line++) {
    if (line > startLine && (state.isEmpty(line) || state.sCount[line]! < state.blkIndent)) return null;
    let text = state.src.slice(state.bMarks[line]! + state.tShift[line]!, state.eMarks[line]).trimEnd();
    if (line === startLine) text = text.slice(open.length);
    else if (/^(```|~~~)/.test(text)) return null;
    length += text.length;
    if (length > limits.formula) return null;
    const at = findCloser(text, 0, text.length, closer);
    if (at >= 0) {
      if (at + closer.length !== text.length) return null;
      lines.push(text.slice(0, at));
      const content = lines.join("\n").trim();
      return content === "" ? null : { line, content };
    }
    lines.push(text);
  }
  return null;
}
