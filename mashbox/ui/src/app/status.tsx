import { health, model, phase } from "../api/server";
import type { Message } from "../chat/types";
import { t } from "../texts";
import { path, run } from "./store";

const NEARLY_FULL = 0.85;

/** The line below the message box: the context's use and the server's slots. */
export function Status() {
  const size = model.value?.max_model_len ?? null;
  const used = usedBy(path.value);
  const share = size ? used / size : 0;
  return (
    <footer class="status" data-testid="status" aria-label={t.status}>
      {size !== null && (
        <span class="status-context" data-level={share > NEARLY_FULL ? "high" : "normal"}>
          <progress
            class="context-bar"
            aria-label={t.contextUsed}
            aria-valuetext={t.context(used, size)}
            max={size}
            value={Math.min(used, size)}
          />
          <span>{used ? t.context(used, size) : t.contextUnknown(size)}</span>
        </span>
      )}
      <Slots />
      {share > NEARLY_FULL && !run.value && <span class="status-warning">{t.contextFull}</span>}
    </footer>
  );
}

function Slots() {
  const report = health.value;
  if (phase.value !== "ready" || !report) return null;
  const busy = report.live_rows ?? 0;
  const slots = model.value?.slots;
  return (
    <span class="status-slots" data-busy={busy > 0}>
      <span>{slots ? t.slots(busy, slots) : t.busy(busy)}</span>
      {report.waiting > 0 && <span>, {t.waiting(report.waiting)}</span>}
    </span>
  );
}

/** Tokens of the shown branch, as the server counted them at its last answer. */
function usedBy(messages: readonly Message[]): number {
  const figures = messages.findLast((message) => message.figures)?.figures;
  return figures ? figures.promptTokens + figures.answerTokens : 0;
}
