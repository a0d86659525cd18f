import { useState } from "preact/hooks";
import { t } from "../texts";
import { Answer } from "./answer";

export interface ThinkingProps {
  text: string;
  /** How long the thoughts took, null while they go on. */
  seconds: number | null;
}

/** The model's thoughts, folded; drawn only while they are open. */
export function Thinking({ text, seconds }: ThinkingProps) {
  const [isOpen, setOpen] = useState(false);
  const isStreaming = seconds === null;
  return (
    <details class="md-thinking" data-streaming={isStreaming} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{isStreaming ? t.thinking : t.thought(seconds)}</summary>
      {isOpen && <Answer text={text} streaming={isStreaming} />}
    </details>
  );
}
