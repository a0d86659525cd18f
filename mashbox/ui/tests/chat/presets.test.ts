import { describe, expect, it } from "vitest";
import { BUILT_IN, presetOf, withPreset } from "../../src/chat/presets";
import { PLAIN } from "../../src/chat/types";

describe("presets", () => {
  const settings = { ...PLAIN, system: "mine", temperature: 3 };

  it.each(BUILT_IN)("$name leaves the system prompt alone and is recognised", (preset) => {
    const taken = withPreset(settings, preset);
    expect(taken.system).toBe("mine");
    expect(presetOf(taken, BUILT_IN)).toBe(preset);
  });

  it("brings its own system prompt", () => {
    const own = { id: "x", name: "x", settings: { ...PLAIN, system: "theirs" } };
    expect(withPreset(settings, own).system).toBe("theirs");
  });

  it("knows settings that are none", () => {
    expect(presetOf(settings, BUILT_IN)).toBeNull();
  });
});
