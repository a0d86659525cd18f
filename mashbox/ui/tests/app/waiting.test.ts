import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { countDown, until } from "../../src/app/waiting";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("countDown", () => {
  function started(seconds: number) {
    const told: number[] = [];
    const skip = signal(0);
    const abort = new AbortController();
    let end: "open" | "over" | "aborted" = "open";
    const tell = (left: number) => void (told.at(-1) !== left && told.push(left));
    void countDown(seconds, tell, skip, abort.signal).then(
      () => (end = "over"),
      () => (end = "aborted"),
    );
    return { told, skip, abort, end: () => end };
  }

  it("tells each second and ends after the last", async () => {
    const { told, end } = started(3);
    await vi.advanceTimersByTimeAsync(2900);
    expect([told, end()]).toEqual([[3, 2, 1], "open"]);
    await vi.advanceTimersByTimeAsync(100);
    expect(end()).toBe("over");
    expect(vi.getTimerCount()).toBe(0);
  });

  it("goes by the clock when ticks come late", async () => {
    const { told } = started(30);
    vi.setSystemTime(Date.now() + 20_000);
    await vi.advanceTimersByTimeAsync(250);
    expect(told).toEqual([30, 10]);
  });

  it("can be skipped", async () => {
    const { skip, end } = started(60);
    skip.value++;
    await vi.advanceTimersByTimeAsync(0);
    expect(end()).toBe("over");
  });

  it("can be given up", async () => {
    const { abort, end } = started(60);
    abort.abort();
    await vi.advanceTimersByTimeAsync(0);
    expect(end()).toBe("aborted");
  });
});

describe("until", () => {
  it("settles at once when the test holds already", async () => {
    await until(() => true, new AbortController().signal);
  });

  it("settles when the test comes to hold, and looks no further", async () => {
    const value = signal(0);
    const looks: number[] = [];
    const waiting = until(() => looks.push(value.value) > 0 && value.value === 2, new AbortController().signal);
    value.value = 1;
    value.value = 2;
    await waiting;
    value.value = 3;
    expect(looks).toEqual([0, 1, 2]);
  });

  it("rejects when it is given up, before or after", async () => {
    const abort = new AbortController();
    const waiting = until(() => false, abort.signal);
    abort.abort();
    await expect(waiting).rejects.toThrow();
    await expect(until(() => false, abort.signal)).rejects.toThrow();
  });
});
