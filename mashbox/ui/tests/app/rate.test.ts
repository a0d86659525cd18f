import { describe, expect, it } from "vitest";
import { Rate } from "../../src/app/rate";

/** A rate after one token at each of these times. */
function after(...times: number[]): Rate {
  const rate = new Rate();
  times.forEach((time, index) => rate.add(time, index + 1));
  return rate;
}

const every = (ms: number, from: number, to: number) =>
  Array.from({ length: Math.floor((to - from) / ms) + 1 }, (_, index) => from + index * ms);

describe("Rate", () => {
  it("says nothing before it has seen enough", () => {
    expect(after().at(1000)).toBeNull();
    expect(after(1000).at(1100)).toBeNull();
    expect(after(...every(20, 0, 400)).at(400)).toBeNull();
  });

  it("counts tokens that come several at once", () => {
    const rate = new Rate();
    for (const step of [0, 1, 2, 3, 4, 5]) rate.add(200 * step, 4 * step);
    expect(rate.at(1000)).toBeCloseTo(20);
  });

  it("counts tokens by the second", () => {
    expect(after(...every(20, 0, 1000)).at(1000)).toBeCloseTo(50);
  });

  it("forgets what is long ago", () => {
    expect(after(...every(100, 0, 10_000), ...every(10, 10_010, 14_000)).at(14_000)).toBeCloseTo(100);
  });

  it("falls while nothing comes", () => {
    const rate = after(...every(20, 0, 1000));
    expect(rate.at(2000)).toBeCloseTo(25);
    expect(rate.at(9000)).toBeNull();
  });
});
