/** Where the letters and digits of a style begin in Unicode's Mathematical Alphanumeric Symbols. */
interface Style {
  upper: number;
  lower: number;
  digits?: number;
  /** Letters that Unicode had before, in another place. */
  elsewhere?: Readonly<Record<string, string>>;
}

const styles: Readonly<Record<string, Style>> = {
  bold: { upper: 0x1d400, lower: 0x1d41a, digits: 0x1d7ce },
  italic: { upper: 0x1d434, lower: 0x1d44e, elsewhere: { h: "ℎ" } },
  "bold-italic": { upper: 0x1d468, lower: 0x1d482 },
  script: {
    upper: 0x1d49c,
    lower: 0x1d4b6,
    elsewhere: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  },
  "bold-script": { upper: 0x1d4d0, lower: 0x1d4ea },
  fraktur: { upper: 0x1d504, lower: 0x1d51e, elsewhere: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" } },
  "bold-fraktur": { upper: 0x1d56c, lower: 0x1d586 },
  "double-struck": {
    upper: 0x1d538,
    lower: 0x1d552,
    digits: 0x1d7d8,
    elsewhere: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  },
  "sans-serif": { upper: 0x1d5a0, lower: 0x1d5ba, digits: 0x1d7e2 },
  "bold-sans-serif": { upper: 0x1d5d4, lower: 0x1d5ee, digits: 0x1d7ec },
  "sans-serif-italic": { upper: 0x1d608, lower: 0x1d622 },
  "sans-serif-bold-italic": { upper: 0x1d63c, lower: 0x1d656 },
  monospace: { upper: 0x1d670, lower: 0x1d68a, digits: 0x1d7f6 },
};

/** Writes `mathvariant`, which browsers (MathML Core) no longer heed, into the letters themselves. */
export function writeVariants(maths: ParentNode): void {
  for (const element of maths.querySelectorAll("[mathvariant]")) {
    const style = styles[element.getAttribute("mathvariant") ?? ""];
    if (!style || element.childElementCount > 0) continue;
    element.removeAttribute("mathvariant");
    element.textContent = [...element.textContent].map((letter) => written(letter, style)).join("");
  }
}

function written(letter: string, style: Style): string {
  if (/^[A-Z]$/.test(letter)) return style.elsewhere?.[letter] ?? shifted(letter, "A", style.upper);
  if (/^[a-z]$/.test(letter)) return style.elsewhere?.[letter] ?? shifted(letter, "a", style.lower);
  return /^[0-9]$/.test(letter) && style.digits ? shifted(letter, "0", style.digits) : letter;
}

function shifted(letter: string, first: string, base: number): string {
  return String.fromCodePoint(base + letter.charCodeAt(0) - first.charCodeAt(0));
}
