const words = "Some words of an answer that goes on, with **bold** ones, `code` and a [link](https://example.com/page). ";

/** Answers of one kind each: how it begins, and what it repeats. */
export const kinds: Readonly<Record<string, readonly [start: string, piece: string]>> = {
  mixed: [
    "",
    `## A heading\n\n${words.repeat(3)}\n\n- an item with **bold** words\n- another with \`code\`\n  1. and one below\n\n` +
      '```python\ndef area(radius: float) -> float:\n    """Of a circle."""\n    return math.pi * radius**2\n```\n\n' +
      "| name | size |\n|---|--:|\n| one | 1 |\n| two | 2 |\n\nWith $a^2 + b^2 = c^2$ and\n\n$$\n\\int_0^1 x^2 \\, dx = \\frac{1}{3}\n$$\n\n> quoted\n\n",
  ],
  paragraphs: ["", `${words.repeat(4)}\n\n`],
  "one list": ["", "- an item with **bold** words and `code` in it\n"],
  "one table": ["| a | b | c |\n|---|---|---|\n", "| some words | **bold** | `code` |\n"],
  "one code block": ["```python\n", "    total = sum(value * 2 for value in values if value > 0)  # a line of code\n"],
  "one quote": ["", "> Some words of a quote that goes on.\n>\n"],
  "one paragraph": ["", words],
  "one line of plain text": ["", "word "],
  formulas: ["", "The sum $\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}$ and $e^{i\\pi} + 1 = 0$ are known.\n\n"],
};
