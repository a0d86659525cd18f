import type { Token } from "markdown-it";
import { isCode, isFence, Lines, topLevel, type Group } from "./groups";
import { limits } from "./limits";
import { markdown } from "./markdown";
import { OpenFence } from "./open-fence";
import { OpenItems, type Kept } from "./open-items";

/** A link's target by its normalised label, as markdown-it keeps it. */
export type References = Record<string, { title: string; href: string }>;

/** One top-level block: its tokens, before their inline content is parsed, and its source, which `plain` blocks show. */
export interface Block {
  tokens: Token[];
  source: string;
  plain: boolean;
  /** What of it is as it was at the last change, if that is known. */
  kept?: Kept;
}

/** What an `append` changed. */
export interface Change {
  /** Blocks that are finished for good, in order, since the last change. */
  finished: Block[];
  /** What stands behind all finished blocks; it may be read in another way when more text comes. */
  open: Block[];
  /** Text that the last open block, a fence, grew by: then `finished` is empty and `open` as before. */
  grown: string | null;
  /** Labels whose link target is new, another or gone. */
  relabelled: ReadonlySet<string>;
}

const unchanged: ReadonlySet<string> = new Set();

/**
 * Splits a growing Markdown text into top-level blocks by markdown-it's own block rules.
 *
 * Whatever the pieces that a text comes in, the blocks are those of the whole text read at once. Only what stands
 * behind the last finished block is read again: of a list that grows its last item, of a table its last rows, of a
 * code fence nothing.
 *
 * A block is finished when no later text can change it: no rule looks further ahead than the next empty line (or
 * fence), and what goes on behind an empty line (lists) is known from the next line that is whole.
 */
export class BlockStream {
  /** Link targets of finished blocks. */
  private readonly references: References = Object.create(null) as References;
  private openReferences: References = {};
  private source = "";
  private endsInReturn = false;
  private fence: OpenFence | null = null;
  private items: OpenItems | null = null;
  private rest: string | null = null;
  private open: Block[] = [];
  /** Characters given to the block rules so far, each time they were. */
  parsed = 0;

  append(text: string): Change {
    const piece = this.normalise(text);
    this.source += piece;
    if (this.rest !== null) return this.growRest(piece);
    const grown = this.fence?.grow(piece) ?? null;
    if (grown === null) return this.readItems() ?? this.parse();
    return { finished: [], open: this.open, grown, relabelled: unchanged };
  }

  /** All link targets that the text so far defines. */
  targets(): References {
    return Object.assign(Object.create(null) as References, this.openReferences, this.references);
  }

  private normalise(text: string): string {
    let piece = this.endsInReturn && text.startsWith("\n") ? text.slice(1) : text;
    if (text !== "") this.endsInReturn = text.endsWith("\r");
    if (piece.includes("\r")) piece = piece.replace(/\r\n?/g, "\n");
    return piece.includes("\0") ? piece.replaceAll("\0", "\uFFFD") : piece;
  }

  private growRest(piece: string): Change {
    this.rest += piece;
    this.source = "";
    const open = [{ tokens: [], source: this.rest!, plain: true }];
    return { finished: [], open, grown: null, relabelled: unchanged };
  }

  /** The change if all that goes on is the last list or table; null otherwise. */
  private readItems(): Change | null {
    if (!this.items || this.source.length > limits.block) return null;
    const read = this.items.read(this.source);
    if (!read || isTooMuch(read.tokens)) return null;
    this.parsed += read.parsed;
    this.items = read.next;
    this.open = [...this.open.slice(0, -1), { tokens: read.tokens, source: this.source, plain: false, kept: read.kept }];
    return { finished: [], open: this.open, grown: null, relabelled: unchanged };
  }

  private parse(): Change {
    const { source } = this;
    this.parsed += source.length;
    const tokens: Token[] = [];
    const found = Object.create(this.references) as References;
    markdown.block.parse(source, markdown, { references: found }, tokens);
    const relabelled = this.compareReferences(found);
    const lines = new Lines(source);
    const groups = topLevel(tokens, lines);
    const oversized = groups.findIndex((group) => !isCode(group) && group.source.length > limits.block);
    const count = oversized < 0 ? countFinished(groups, lines) : oversized;
    for (const group of groups.slice(0, count)) this.keepReferences(group, found);
    this.openReferences = { ...found };
    const offset = count < groups.length ? lines.offset(groups[count]!.start) : endOf(groups, lines);
    this.source = source.slice(offset);
    if (oversized >= 0) return this.cut(groups.slice(0, count), relabelled);
    this.open = blocksOf(groups.slice(count));
    this.fence = OpenFence.at(groups.slice(count), this.source);
    const last = groups.length > count && !this.open.at(-1)?.plain ? groups.at(-1)! : null;
    this.items = last && OpenItems.at(last, lines, groups[count]!.start);
    return { finished: blocksOf(groups.slice(0, count)), open: this.open, grown: null, relabelled };
  }

  /** From a block over the limit on, all is plain text: reading it again and again would take ever longer. */
  private cut(finished: Group[], relabelled: ReadonlySet<string>): Change {
    this.rest = "";
    return { ...this.growRest(this.source), finished: blocksOf(finished), relabelled };
  }

  private compareReferences(found: References): ReadonlySet<string> {
    const before = this.openReferences;
    const labels = new Set([...Object.keys(before), ...Object.keys(found)]);
    for (const label of labels) {
      const was = this.references[label] ?? before[label];
      const is = found[label];
      if (was?.href === is?.href && was?.title === is?.title) labels.delete(label);
    }
    return labels;
  }

  private keepReferences(group: Group, found: References): void {
    for (const token of group.tokens) {
      if (token.type !== "reference_definition") continue;
      const label = token.meta?.["label"] as string;
      const target = found[label];
      if (target && Object.hasOwn(found, label)) {
        this.references[label] = target;
        delete found[label];
      }
    }
  }
}

function endOf(groups: Group[], lines: Lines): number {
  return groups.length === 0 ? 0 : lines.offset(groups.at(-1)!.end);
}

/** How many groups, from the first, no later text can change. */
function countFinished(groups: Group[], lines: Lines): number {
  const last = groups.at(-1);
  if (last && isFence(last) && lines.isWhole(last.end - 1) && isClosed(last)) return groups.length;
  for (let count = groups.length - 1; count > 0; count--) {
    const { start } = groups[count]!;
    if (!lines.isWhole(start)) continue;
    if (lines.isEmpty(start - 1) || isFence(groups[count]!) || isFence(groups[count - 1]!)) return count;
  }
  return 0;
}

/** A closed fence stands on two lines more than its content has. */
function isClosed(group: Group): boolean {
  const { content } = group.tokens[0]!;
  const breaks = content.split("\n").length - 1;
  return group.end - group.start === breaks + 2 && (content === "" || content.endsWith("\n"));
}

function blocksOf(groups: Group[]): Block[] {
  return groups.flatMap(({ tokens, source }) => {
    const shown = tokens.filter((token) => token.type !== "reference_definition");
    return shown.length === 0 ? [] : [{ tokens: shown, source, plain: isTooMuch(shown) }];
  });
}

/** markdown-it drops what is nested deeper than its limit, and fills up table rows with cells that nobody wrote. */
function isTooMuch(tokens: Token[]): boolean {
  let cells = 0;
  for (const token of tokens) {
    if (token.nesting === 1 && token.level >= limits.nesting - 1) return true;
    if (token.type === "td_open" && ++cells > limits.cells) return true;
  }
  return false;
}
