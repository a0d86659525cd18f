import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { codeOf } from "./code-block";
import { copyText } from "../app/clipboard";
import { t } from "../texts";
import { AnswerView } from "./view";
import "./render.css";
import "./highlight.css";

export interface AnswerProps {
  /** Markdown; grows at its end while `streaming`. */
  text: string;
  streaming: boolean;
  /** Whether the reader is at its end when it comes. */
  fromEnd?: boolean;
}

/** One answer of the model. */
export function Answer({ text, streaming, fromEnd = false }: AnswerProps) {
  const root = useRef<HTMLDivElement>(null);
  const [slot] = useState<{ view: AnswerView | null }>({ view: null });
  useLayoutEffect(() => {
    const view = new AnswerView(root.current!, fromEnd);
    slot.view = view;
    return () => view.dispose();
  }, [slot]);
  useLayoutEffect(() => slot.view?.update(text, streaming), [slot, text, streaming]);
  return <div ref={root} class="md-answer" aria-busy={streaming} onClick={copyCode} />;
}

/** One listener for all copy buttons below an answer. */
function copyCode(event: MouseEvent): void {
  const button = event.target instanceof Element ? event.target.closest("button.md-copy") : null;
  const code = button && codeOf(button);
  if (!button || code === null) return;
  void copyText(code).then((isCopied) => {
    button.textContent = isCopied ? t.copied : t.copyFailed;
    setTimeout(() => (button.textContent = t.copy), 2000);
  });
}
