/** How much of a model's answer is given its full form; what is over is still shown, as plain text. Characters. */
export const limits = {
  /** One top-level block. It and all behind it are plain from here on. */
  block: 200_000,
  /** Blocks that are laid out as one while they are out of sight. */
  section: 24,
  /** The text of one paragraph, heading or cell. */
  inline: 60_000,
  /** What is drawn of it as one, and a part of it that can't be cut into such pieces. */
  piece: 2_000,
  uncut: 10_000,
  /** Pieces of it that are laid out as one: each time a word comes, all lines are broken anew. */
  pieces: 4,
  /** Elements that one paragraph may hold inside each other; deeper marks are dropped, their text stays. */
  inlineDepth: 20,
  /** Containers (quotes, lists, their items) inside each other. */
  nesting: 40,
  /** Cells of one table: rows may be filled up with cells that nobody wrote. */
  cells: 10_000,
  /** Rows of a table that are laid out as one: their columns are measured together, each time one more comes. */
  rows: 50,
  /** One formula. */
  formula: 4_000,
  /** A formula between single dollars, which is looked for in running text. */
  inlineFormula: 1_000,
  /** Lines of a formula that stands in a block of its own. */
  formulaLines: 200,
  /** Code that is given colours. */
  highlight: 20_000,
} as const;
