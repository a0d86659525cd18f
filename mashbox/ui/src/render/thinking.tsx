/** The model's thoughts, folded; `seconds` is how long they took, null while they go on. */
export function Thinking({ text, seconds }: { text: string; seconds: number | null }) {
  return (
    <details class="thinking">
      <summary>{seconds === null ? "Thinking …" : `Thought for ${seconds.toFixed(1)} s`}</summary>
      <div>{text}</div>
    </details>
  );
}
