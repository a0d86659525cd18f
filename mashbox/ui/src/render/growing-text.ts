/**
 * Text that only grows, in pieces of a bounded size: adding to it costs what is added, not what is there.
 */
export class GrowingText {
  private last: Text | null = null;

  /** @param piece characters that one text node holds at most, about */
  constructor(
    readonly element: Element,
    private readonly piece: number,
    private readonly holderOfPiece: () => Element | null = () => null,
  ) {}

  append(text: string): void {
    let rest = text;
    while (rest !== "") {
      if (!this.last || this.last.length >= this.piece) this.begin();
      const room = cut(rest, this.piece - this.last!.length);
      this.last!.appendData(rest.slice(0, room));
      rest = rest.slice(room);
      if (rest !== "") this.last = null;
    }
  }

  private begin(): void {
    this.last = this.element.ownerDocument.createTextNode("");
    const holder = this.holderOfPiece();
    if (holder) this.element.append(holder);
    (holder ?? this.element).append(this.last);
  }
}

/** Where to cut `text` so that a piece has at most `room` characters: behind a line or a word if there is one. */
function cut(text: string, room: number): number {
  if (text.length <= room) return text.length;
  const line = text.lastIndexOf("\n", room - 1);
  if (line > 0) return line + 1;
  const word = text.lastIndexOf(" ", room - 1);
  if (word > 0) return word + 1;
  const code = text.charCodeAt(room - 1);
  return code >= 0xd800 && code <= 0xdbff && room > 1 ? room - 1 : room;
}
