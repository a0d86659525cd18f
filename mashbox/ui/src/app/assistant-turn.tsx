import { Answer } from "../render/answer";
import { Thinking } from "../render/thinking";
import { ToolCalls } from "../render/tools";
import type { Figures } from "../api/chat";
import type { Message } from "../chat/types";
import { t } from "../texts";
import { goOn, retry } from "./actions";
import { IconButton } from "./button";
import { CopyButton } from "./copy-button";
import { RetryIcon } from "./icons";
import type { Run } from "./run";
import { atEnd } from "./scroll";
import { Versions } from "./versions";
import { health, model } from "../api/server";

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
      {thinking && <Thinking text={thinking} seconds={thoughtFor(message, streaming)} />}
      {text && (
        <div data-testid="answer">
          <Answer text={text} streaming={streaming} fromEnd={atEnd.peek()} />
        </div>
      )}
      {calls && <ToolCalls calls={calls} />}
      {streaming && stage !== "writing" && stage !== "thinking" && <Pending stage={stage} />}
      {streaming && <Pace run={run} />}
      {!streaming && <Ending message={message} last={last} />}
      {!streaming && (
        <div class="turn-actions">
          <Versions message={message} />
          {text && <CopyButton text={() => text} />}
          <IconButton label={t.retry} onClick={() => retry(message)}>
            <RetryIcon />
          </IconButton>
          {figures && <FiguresLine figures={figures} tokens={message.tokens ?? figures.answerTokens} />}
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

/** How an answer ended, when that is not plain to see, and what can be done about it. */
function Ending({ message, last }: { message: Message; last: boolean }) {
  const { finish, error, text, thinking, calls } = message;
  if (finish === "stop" || finish === "tool_calls") return null;
  const isFull = finish === "length" && fillsContext(message);
  const isBroken = finish === "broken";
  const words = isBroken ? error : isFull ? t.answerFull : t.endings[finish ?? "unfinished"];
  return (
    <div class={isBroken ? "ending problem" : "ending"} role={isBroken ? "alert" : undefined}>
      <span>{words}</span>
      {last && !isFull && !calls && Boolean(text || thinking) && (
        <button type="button" class="text-button" onClick={() => goOn(message)}>
          {t.goOn}
        </button>
      )}
      {isBroken && (
        <button type="button" class="text-button" onClick={() => retry(message)}>
          {t.retry}
        </button>
      )}
    </div>
  );
}

/** Whether an answer ended because there is no room left behind it. */
function fillsContext({ figures }: Message): boolean {
  const size = model.value?.max_model_len;
  return size !== undefined && figures !== undefined && figures.promptTokens + figures.answerTokens >= size;
}

/** How fast the answer comes, while it does. It changes all the time: nothing to be read out. */
function Pace({ run }: { run: Run }) {
  const rate = run.rate.value;
  return (
    <div class="turn-actions" aria-hidden="true">
      {rate !== null && <span class="figures">{t.perSecond(rate)}</span>}
    </div>
  );
}

function FiguresLine({ figures, tokens }: { figures: Figures; tokens: number }) {
  const { perSecond, queueMs, promptMs, cachedTokens, promptTokens } = figures;
  const parts = [
    perSecond !== null && t.perSecond(perSecond),
    t.answerTokens(tokens),
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
