import type { Done, Job } from "./highlight.worker";
import type { Run } from "./highlight-runs";
import { languageName } from "./language-names";
import { trustedWorkerAddress } from "./trusted";

export type { Run };

/** A grammar may need very long for some text: then its code goes without colours. */
const patience = 3000;

/**
 * Splits code into coloured runs in a worker, one block after the other, so that no frame waits for it.
 * Null if the language is unknown or it took too long.
 */
export function colour(code: string, language: string): Promise<Run[] | null> {
  if (languageName(language) === null) return Promise.resolve(null);
  const result = queue.then(() => run(code, language));
  queue = result;
  return result;
}

let queue: Promise<unknown> = Promise.resolve();
let worker: Worker | null = null;
let jobs = 0;

function run(code: string, language: string): Promise<Run[] | null> {
  const job: Job = { id: ++jobs, code, language };
  return new Promise((resolve) => {
    const current = (worker ??= startWorker());
    if (!current) return resolve(null);
    const finish = (runs: Run[] | null) => {
      clearTimeout(timer);
      current.removeEventListener("message", onMessage);
      current.removeEventListener("error", onError);
      resolve(runs);
    };
    const onMessage = (event: MessageEvent<Done>) => {
      if (event.data.id === job.id) finish(event.data.runs);
    };
    const onError = () => {
      endWorker();
      finish(null);
    };
    const timer = setTimeout(onError, patience);
    current.addEventListener("message", onMessage);
    current.addEventListener("error", onError);
    current.postMessage(job);
  });
}

function startWorker(): Worker | null {
  if (typeof Worker === "undefined") return null;
  return new Worker(trustedWorkerAddress(), { type: "module" });
}

function endWorker(): void {
  worker?.terminate();
  worker = null;
}
