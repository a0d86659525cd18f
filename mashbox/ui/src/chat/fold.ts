/** Lower case without accents, of the same length, so that places in both agree. */
export function fold(text: string): string {
  return text.replace(/[^\x00-\x7f]|[A-Z]/g, (unit) => {
    const plain = unit.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    return plain.length === 1 ? plain : unit;
  });
}
