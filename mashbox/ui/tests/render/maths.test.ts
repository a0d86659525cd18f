// @vitest-environment jsdom
import { beforeAll, describe, expect, it, vi } from "vitest";

describe("formulas", () => {
  let early: import("./support").Shown;
  let Shown: typeof import("./support").Shown;
  let maths: typeof import("../../src/render/maths");

  beforeAll(async () => {
    // Another file may have had KaTeX loaded.
    vi.resetModules();
    maths = await import("../../src/render/maths");
    ({ Shown } = await import("./support"));
  });

  it("are source until KaTeX is there", () => {
    early = new Shown("Before $\\frac{a}{b}$\n\nthen\n\n$$\\color{red}{x}\\tag{1}$$\n\nend\n");
    expect(maths.mathsAreLoaded()).toBe(false);
    expect(early.root.querySelector("math")).toBeNull();
    expect(early.root.textContent).toContain("\\frac{a}{b}");
  });

  describe("once KaTeX is loaded", () => {
    beforeAll(async () => {
      await maths.loadMaths();
    });

    it("are drawn where they were awaited, as MathML without styles", async () => {
      // Some each frame.
      await vi.waitFor(() => expect(early.root.querySelectorAll("math")).toHaveLength(2));
      expect(early.root.querySelector("mfrac")!.namespaceURI).toBe("http://www.w3.org/1998/Math/MathML");
      expect(early.root.querySelector("[style], [class^=k], annotation")).toBeNull();
      expect(early.root.textContent).not.toContain("\\frac");
    });

    it("keep the attributes that their layout needs", () => {
      const matrix = maths.drawMaths("\\begin{array}{l|r}a&b\\\\c&d\\end{array}\\hspace{1em}\\overline{x}\\mathbb{R}", true)!;
      expect(matrix.querySelector("mtable")!.getAttribute("columnalign")).toBe("left right");
      expect(matrix.querySelector("math")!.getAttribute("display")).toBe("block");
      expect(matrix.querySelector("mspace")!.getAttribute("width")).toMatch(/em$/);
      expect(matrix.querySelector("mover")!.getAttribute("accent")).toBe("true");
    });

    it("carry their style in their letters, as browsers take no other", () => {
      const letters = maths.drawMaths("\\mathbb{RA}\\mathcal{LA}\\mathfrak{g}\\mathbf{x1}\\mathsf{s}\\mathtt{t}x\\mathrm{d}", false)!;
      expect(letters.textContent).toBe("ℝ𝔸ℒ𝒜𝔤𝐱𝟏𝗌𝚝xd");
    });

    it("are source where TeX is wrong", () => {
      expect(new Shown("$\\wrong{$").root.textContent).toBe("\\wrong{");
    });
  });
});
