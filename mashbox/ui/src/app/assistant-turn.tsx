import { Answer } from "../render/answer";
import { Thinking } from "../render/thinking";
import { ToolCalls } from "../render/tools";
import type { Figures } from "../api/chat";
import type { Message } from "../chat/types";
import { t } from "../texts";
import { retry } from "./actions";
import { IconButton } from "./button";
import { CopyButton } from "./copy-button";
import { RetryIcon } from "./icons";
import type { Run } from "./run";
import { Versions } from "./versions";
import { health } from "../api/server";

type Props = { message: Message; run: Run | null; last: boolean };

/** An answer of the model, on its way or done. */
export function AssistantTurn({ message: kept, run, last }: Props) {
  const message = run?.message.value ?? kept;
  const stage = run?.stage.value ?? "done";
  const streaming = run !== null && stage !== "done";
  const { text, thinking, calls, figures } = message;
  return (
    <article class="turn assistant" aria-label={t.assistant} data-last={last} id={`message-${kept.id}`} tabIndex={-1}>
      <h2 class="visually-hidden">{t.assistant}</h2>
      {streaming && !text && !thinking && !calls && <Pending stage={stage} />}
      {thinking && <Thinking text={thinking} seconds={thoughtFor(message, streaming)} />}
      {text && (
        <div data-testid="answer">
          <Answer text={text} streaming={streaming} />
        </div>
      )}
      {calls && <ToolCalls calls={calls} />}
      {streaming && <Pace run={run} />}
      {!streaming && <Ending message={message} />}
      {!streaming && (
        <div class="turn-actions">
          <Versions message={message} />
          {text && <CopyButton text={() => text} />}
          <IconButton label={t.retry} onClick={() => retry(message)}>
            <RetryIcon />
          </IconButton>
          {figures && <FiguresLine figures={figures} />}
        </div>
      )}
    </article>
  );
}

/** Null while thoughts go on. */
function thoughtFor({ thinkingMs }: Message, streaming: boolean): number | null {
  if (thinkingMs === undefined && streaming) return null;
  return (thinkingMs ?? 0) / 1000;
}

function Pending({ stage }: { stage: Run["stage"]["value"] }) {
  const inLine = stage === "asking" && (health.value?.waiting ?? 0) > 0;
  const words = stage === "asking" ? (inLine ? t.waitingInLine : t.reading) : null;
  return (
    <p class="pending">
      <span class="pulse" aria-hidden="true" />
      {words && <span>{words}</span>}
    </p>
  );
}

/** How an answer ended, when that is not plain to see. */
function Ending({ message }: { message: Message }) {
  const { finish, error } = message;
  if (finish === "broken") {
    return (
      <p class="ending problem" role="alert">
        <span>{error}</span>
        <button type="button" class="text-button" onClick={() => retry(message)}>
          {t.retry}
        </button>
      </p>
    );
  }
  if (finish === "stopped") return <p class="ending">{t.answerStopped}</p>;
  if (finish === "length") return <p class="ending">{t.answerLength}</p>;
  return finish === undefined ? <p class="ending">{t.answerUnfinished}</p> : null;
}

/** How fast the answer comes, while it does. It changes all the time: nothing to be read out. */
function Pace({ run }: { run: Run }) {
  const rate = run.rate.value;
  return (
    <div class="turn-actions" aria-hidden="true">
      {rate !== null && <span class="figures">{t.about(t.perSecond(rate))}</span>}
    </div>
  );
}

function FiguresLine({ figures }: { figures: Figures }) {
  const { perSecond, queueMs, promptMs, cachedTokens, promptTokens, answerTokens } = figures;
  const parts = [
    perSecond !== null && t.perSecond(perSecond),
    t.answerTokens(answerTokens),
    t.firstToken(queueMs + promptMs),
    queueMs > 100 && t.inLine(queueMs),
    t.cached(cachedTokens, promptTokens),
  ].filter((part) => part !== false);
  return (
    <span class="figures" data-testid="figures">
      {parts.map((part) => (
        <span key={part}>{part}</span>
      ))}
    </span>
  );
}
