import type { Token } from "markdown-it";

/** A top-level block: its tokens, its lines (the end is behind the last) and their text. */
export interface Group {
  tokens: Token[];
  start: number;
  end: number;
  source: string;
}

export function topLevel(tokens: Token[], lines: Lines): Group[] {
  const groups: Group[] = [];
  let first = 0;
  tokens.forEach((token, index) => {
    if (token.level !== 0 || token.nesting === 1) return;
    const [start, end] = tokens[first]!.map!;
    groups.push({ tokens: tokens.slice(first, index + 1), start, end, source: lines.text(start, end) });
    first = index + 1;
  });
  return groups;
}

/** Where the lines of a text begin. */
export class Lines {
  private readonly starts: number[] = [0];

  constructor(private readonly source: string) {
    for (let at = source.indexOf("\n"); at >= 0; at = source.indexOf("\n", at + 1)) this.starts.push(at + 1);
  }

  offset(line: number): number {
    return this.starts[line] ?? this.source.length;
  }

  isWhole(line: number): boolean {
    return line + 1 < this.starts.length;
  }

  isEmpty(line: number): boolean {
    return /^[ \t]*\n?$/.test(this.text(line, line + 1));
  }

  text(start: number, end: number): string {
    return this.source.slice(this.offset(start), this.offset(end));
  }
}

export function isFence(group: Group): boolean {
  return group.tokens[0]!.type === "fence";
}

export function isCode(group: Group): boolean {
  return isFence(group) || group.tokens[0]!.type === "code_block";
}
