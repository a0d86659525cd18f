import { t } from "../texts";

/** A call of a tool as the Chat API gives it; `arguments` is JSON text. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
  /** What the tool answered, if it was called. */
  result?: string;
}

/** The calls that an answer asks for. */
export function ToolCalls({ calls }: { calls: readonly ToolCall[] }) {
  return (
    <ul class="md-tools" aria-label={t.toolCalls}>
      {calls.map((call) => (
        <li key={call.id} class="md-tool">
          <details open>
            <summary>
              {t.toolCall} <code>{call.name}</code>
            </summary>
            <Arguments json={call.arguments} />
            {call.result !== undefined && <Result text={call.result} />}
          </details>
        </li>
      ))}
    </ul>
  );
}

function Arguments({ json }: { json: string }) {
  const text = pretty(json);
  return text === "" ? <p>{t.toolNoArguments}</p> : <pre tabIndex={0}>{text}</pre>;
}

function Result({ text }: { text: string }) {
  return (
    <>
      <h3>{t.toolResult}</h3>
      <pre tabIndex={0}>{pretty(text)}</pre>
    </>
  );
}

/** JSON with line breaks; text that is none, such as arguments still on their way, as it is. "" for an empty object. */
export function pretty(json: string): string {
  try {
    const value: unknown = JSON.parse(json);
    const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
    return isEmpty && !Array.isArray(value) ? "" : JSON.stringify(value, null, 2);
  } catch {
    return json;
  }
}
