import type { Token } from "markdown-it";
import { Lines, topLevel, type Group } from "./groups";
import { limits } from "./limits";
import { markdown } from "./markdown";

/** The first items of a list, or rows of a table, that are as they were at the last change. */
export interface Kept {
  items: number;
  /** Tokens that stand before the first item, and those before the first item that is not kept. */
  head: number;
  tokens: number;
}

/** What a list or table is now, what of it is as before, and how many characters were read to see it. */
interface Reading {
  tokens: Token[];
  kept: Kept;
  next: OpenItems;
  parsed: number;
}

/**
 * A list or table at the end of the text: its first items can't change any more, and only what stands behind them is
 * read again. An item can't when the first line of the next one is whole, and no formula may have begun in it that
 * would take that line in; rows are kept in whole parts of a table.
 */
export class OpenItems {
  private constructor(
    /** Tokens of the items that can't change, and what stands before them. */
    private readonly tokens: Token[],
    private readonly kept: Kept,
    /** Lines without which the other items would be something else: the head of a table. */
    private readonly lead: string,
    /** Where the other items begin. */
    private readonly start: number,
    /** Whether the items of a list are apart: then so is each that comes. */
    private readonly isLoose: boolean | null,
  ) {}

  /** The items of the last block; null if none of them is certain. `first` is the line where the open blocks begin. */
  static at(group: Group, lines: Lines, first: number): OpenItems | null {
    const [opening] = group.tokens;
    const isTable = opening!.type === "table_open";
    if (!isTable && !opening!.type.endsWith("_list_open")) return null;
    const isLoose = isTable ? null : looseness(group.tokens);
    if ((!isTable && isLoose === null) || group.tokens.some(isDefinition)) return null;
    const found = lastStop(group.tokens, 0, lines, first);
    if (!found) return null;
    const { items, head, tokens, line } = found;
    const lead = isTable ? lines.text(group.start, group.start + 2) : "";
    const kept = { items, head, tokens };
    return new OpenItems(group.tokens.slice(0, tokens), kept, lead, lines.offset(line) - lines.offset(first), isLoose);
  }

  /** The list or table once `source` has grown; null if that is not all there is to it. */
  read(source: string): Reading | null {
    const rest = this.lead + source.slice(this.start);
    const lines = new Lines(rest);
    const found: Token[] = [];
    markdown.block.parse(rest, markdown, { references: {} }, found);
    const [group, ...others] = topLevel(found, lines);
    if (!group || others.length > 0 || !this.goesOn(group.tokens)) return null;
    const first = headOf(group.tokens);
    const tokens = [...this.tokens, ...group.tokens.slice(first)];
    const next = this.moved(tokens, group.tokens, first, lines);
    return { tokens, kept: this.kept, next, parsed: rest.length };
  }

  /** Whether these tokens, which begin with those that `lead` needs, carry on the same list or table. */
  private goesOn(tokens: Token[]): boolean {
    const [was, is] = [this.tokens[0]!, tokens[0]!];
    if (was.type !== is.type || was.markup !== is.markup || tokens.some(isDefinition)) return false;
    if (this.isLoose === null) return true;
    const isLoose = looseness(tokens);
    if (isLoose === null || (isLoose && !this.isLoose)) return false;
    if (!isLoose && this.isLoose) for (const token of tokens) if (isOwnParagraph(token)) token.hidden = false;
    return true;
  }

  private moved(all: Token[], tail: Token[], first: number, lines: Lines): OpenItems {
    const found = lastStop(tail, this.kept.items, lines, 0);
    if (!found) return this;
    const tokens = this.kept.tokens + found.tokens - first;
    const kept = { ...this.kept, items: found.items, tokens };
    const start = this.start + lines.offset(found.line) - this.lead.length;
    return new OpenItems(all.slice(0, tokens), kept, this.lead, start, this.isLoose);
  }
}

/** How many tokens stand before the first item. */
function headOf(tokens: Token[]): number {
  return tokens[0]!.type === "table_open" ? tokens.findIndex(({ type }) => type === "tbody_open") + 1 : 1;
}

/**
 * The last item, of those behind the first, before which all is certain: its line, its first token, and how many stand
 * before it. `before` items are known to stand before all of these, and all before the line `first` is certain.
 */
function lastStop(tokens: Token[], before: number, lines: Lines, first: number): (Kept & { line: number }) | null {
  const head = headOf(tokens);
  if (head === 0) return null;
  const isTable = tokens[0]!.type === "table_open";
  const [opening, level] = isTable ? ["tr_open", 2] : ["list_item_open", 1];
  const formulas = new OpenFormulas(lines, first);
  let items = before;
  let last: (Kept & { line: number }) | null = null;
  for (let index = head; index < tokens.length; index++) {
    const token = tokens[index]!;
    if (token.type !== opening || token.level !== level) continue;
    const line = token.map![0];
    const mayEnd = !formulas.mayReach(line) && (isTable ? items % limits.rows === 0 : lines.isWhole(line));
    if (items > before && mayEnd) last = { items, head, tokens: index, line };
    items++;
  }
  return last;
}

/** Formulas that may begin in a line, and end in one that is still to come: they reach to the next empty line at most. */
class OpenFormulas {
  private mayBeOpen = false;

  constructor(
    private readonly lines: Lines,
    private next: number,
  ) {}

  /** Whether one may reach from before `line` into it. */
  mayReach(line: number): boolean {
    for (; this.next < line; this.next++) {
      if (this.lines.isEmpty(this.next)) this.mayBeOpen = false;
      else this.mayBeOpen ||= /^ *(\$\$|\\\[)/.test(this.lines.text(this.next, this.next + 1));
    }
    return this.mayBeOpen;
  }
}

/** Paragraphs of items that stand close together are hidden: true if they are apart, null if there are none. */
function looseness(tokens: Token[]): boolean | null {
  const paragraph = tokens.find(isOwnParagraph);
  return paragraph ? !paragraph.hidden : null;
}

function isOwnParagraph({ type, level }: Token): boolean {
  return level === 2 && (type === "paragraph_open" || type === "paragraph_close");
}

function isDefinition({ type }: Token): boolean {
  return type === "reference_definition";
}
