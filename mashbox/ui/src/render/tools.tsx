/** A call of a tool as the Chat API gives it; `arguments` is JSON text. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** The calls that an answer asks for. */
export function ToolCalls({ calls }: { calls: readonly ToolCall[] }) {
  return (
    <ul class="tool-calls">
      {calls.map((call) => (
        <li key={call.id}>
          <code>{call.name}</code>
          <pre>{call.arguments}</pre>
        </li>
      ))}
    </ul>
  );
}
