/** One answer of the model: `text` is Markdown and grows while `streaming`. */
export function Answer({ text, streaming }: { text: string; streaming: boolean }) {
  return (
    <div class="answer" aria-busy={streaming}>
      {text}
    </div>
  );
}
