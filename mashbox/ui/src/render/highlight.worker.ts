import { toRuns, type Run } from "./highlight-runs";

/** Code to split into runs. */
export interface Job {
  id: number;
  code: string;
  language: string;
}

export interface Done {
  id: number;
  runs: Run[] | null;
}

self.addEventListener("message", (event: MessageEvent<Job>) => {
  const { id, code, language } = event.data;
  const answer = (runs: Run[] | null) => self.postMessage({ id, runs } satisfies Done);
  toRuns(code, language).then(answer, () => answer(null));
});
