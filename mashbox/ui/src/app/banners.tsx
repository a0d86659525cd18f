import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { health, phase, since } from "../api/server";
import { t } from "../texts";
import { kept, run } from "./store";

type Kind = "loading" | "full" | "restart" | "offline" | "error";

/** What stands in the way of an answer, above the messages. */
export function Banners() {
  const stage = run.value?.stage.value;
  return (
    <div class="banners" role="status">
      {phase.value === "offline" && (
        <Banner kind="offline">
          <strong>{t.offline}</strong> {t.offlineHint}
        </Banner>
      )}
      {phase.value === "loading" && <Loading kind="loading" waits={stage === "loading"} />}
      {phase.value === "restarting" && <Loading kind="restart" waits={stage === "loading"} />}
      {stage === "full" && <Full />}
      {!kept.value && <Banner kind="error">{t.notKept}</Banner>}
    </div>
  );
}

function Banner({ kind, children }: { kind: Kind; children: ComponentChildren }) {
  return (
    <div class="banner" data-testid="banner" data-kind={kind}>
      {children}
    </div>
  );
}

/** How far the model is. What changes all the time is for the eye; a screen reader hears once what goes on. */
function Loading({ kind, waits }: { kind: "loading" | "restart"; waits: boolean }) {
  const now = useClock();
  const loading = health.value?.loading;
  const known = loading?.stage ? loading : null;
  const what = kind === "loading" ? t.loading : t.restarting;
  const progress = known ? t.loadingStage(known.stage, known.share) : t.loadingFor((now - since.value) / 1000);
  return (
    <Banner kind={kind}>
      <strong>{what}</strong>
      {waits && <span>{t.loadingWait}</span>}
      <span class="banner-detail" aria-hidden="true">
        {progress}
      </span>
      {known ? (
        <progress class="banner-progress" aria-label={what} value={known.share} max={1} />
      ) : (
        <progress class="banner-progress" aria-label={what} />
      )}
    </Banner>
  );
}

function Full() {
  const current = run.value;
  if (!current) return null;
  const left = current.left.value;
  return (
    <Banner kind="full">
      {/* Read out once, not every second. */}
      <span class="visually-hidden">{t.fullNow}</span>
      <strong aria-hidden="true">{left > 0 ? t.full(left) : t.fullNow}</strong>
      <span class="banner-actions">
        <button type="button" class="text-button" onClick={() => current.tryNow()}>
          {t.tryNow}
        </button>
        <button type="button" class="text-button" onClick={() => current.stop()}>
          {t.cancel}
        </button>
      </span>
    </Banner>
  );
}

function useClock(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
