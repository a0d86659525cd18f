import { useState } from "preact/hooks";
import { hasKey, setKey } from "../api/key";
import { keyAsked, lookAtModel, takesKey } from "../api/server";
import { t } from "../texts";
import { Dialog } from "./dialog";
import { runs } from "./store";

/** Asks for the server's key when an answer needs one. */
export function KeyDialog() {
  return keyAsked.value ? <KeyForm /> : null;
}

function KeyForm() {
  const [value, setValue] = useState("");
  const [remember, setRemember] = useState(false);
  const [problem, setProblem] = useState(hasKey.value ? t.keyWrong : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    const key = value.trim();
    if (!key) return;
    try {
      if (!(await takesKey(key))) return setProblem(t.keyWrong);
      setKey(key, remember);
      await lookAtModel();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <Dialog title={t.keyNeeded} class="key-dialog" onClose={leave}>
      <form onSubmit={submit}>
        <p>{t.keyText}</p>
        <label class="field">
          <span class="field-name">{t.key}</span>
          <input
            type="password"
            autofocus
            autocomplete="off"
            spellcheck={false}
            value={value}
            aria-invalid={problem !== ""}
            aria-describedby="key-problem"
            onInput={(event) => setValue(event.currentTarget.value)}
          />
        </label>
        <p class="problem" id="key-problem" role="alert">
          {problem}
        </p>
        <label class="check">
          <input
            type="checkbox"
            checked={remember}
            onChange={(event) => setRemember(event.currentTarget.checked)}
          />
          <span>
            {t.keyRemember}
            <small>{t.keySessionOnly}</small>
          </span>
        </label>
        <div class="dialog-actions">
          <button type="submit" class="button primary" disabled={!value.trim()}>
            {t.keyUse}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Nothing can be answered without a key, but all that is kept here can be read. */
function leave(): void {
  keyAsked.value = false;
  for (const run of runs.peek().values()) if (run.stage.peek() === "key") run.stop();
}
