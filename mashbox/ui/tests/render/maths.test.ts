// @vitest-environment jsdom
import { beforeAll, describe, expect, it, vi } from "vitest";
import { drawMaths, loadMaths, mathsAreLoaded } from "../../src/render/maths";
import { Shown } from "./support";

describe("formulas", () => {
  let early: Shown;

  it("are source until KaTeX is there", () => {
    early = new Shown("Before $\\frac{a}{b}$\n\nthen\n\n$$\\color{red}{x}\\tag{1}$$\n\nend\n");
    expect(mathsAreLoaded()).toBe(false);
    expect(early.root.querySelector("math")).toBeNull();
    expect(early.root.textContent).toContain("\\frac{a}{b}");
  });

  describe("once KaTeX is loaded", () => {
    beforeAll(async () => {
      await loadMaths();
    });

    it("are drawn where they were awaited, as MathML without styles", async () => {
      // Some each frame.
      await vi.waitFor(() => expect(early.root.querySelectorAll("math")).toHaveLength(2));
      expect(early.root.querySelector("mfrac")!.namespaceURI).toBe("http://www.w3.org/1998/Math/MathML");
      expect(early.root.querySelector("[style], [class^=k], annotation")).toBeNull();
      expect(early.root.textContent).not.toContain("\\frac");
    });

    it("keep the attributes that their layout needs", () => {
      const matrix = drawMaths("\\begin{array}{l|r}a&b\\\\c&d\\end{array}\\hspace{1em}\\overline{x}\\mathbb{R}", true)!;
      expect(matrix.querySelector("mtable")!.getAttribute("columnalign")).toBe("left right");
      expect(matrix.querySelector("math")!.getAttribute("display")).toBe("block");
      expect(matrix.querySelector("mspace")!.getAttribute("width")).toMatch(/em$/);
      expect(matrix.querySelector("mover")!.getAttribute("accent")).toBe("true");
    });

    it("carry their style in their letters, as browsers take no other", () => {
      const letters = drawMaths("\\mathbb{RA}\\mathcal{LA}\\mathfrak{g}\\mathbf{x1}\\mathsf{s}\\mathtt{t}x\\mathrm{d}", false)!;
      expect(letters.textContent).toBe("ℝ𝔸ℒ𝒜𝔤𝐱𝟏𝗌𝚝xd");
    });

    it("are source where TeX is wrong", () => {
      expect(new Shown("$\\wrong{$").root.textContent).toBe("\\wrong{");
    });
  });
});
