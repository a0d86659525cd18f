import { Answer } from "../render/answer";

/** The whole page. */
export function App() {
  return (
    <main>
      <h1>mashbox</h1>
      <Answer text="Ready." streaming={false} />
    </main>
  );
}
