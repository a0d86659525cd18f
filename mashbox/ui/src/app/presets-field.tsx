import { useState } from "preact/hooks";
import { BUILT_IN, presetOf, withPreset } from "../chat/presets";
import { newId, type Preset } from "../chat/types";
import { t } from "../texts";
import { saveSettings } from "./actions";
import { current, presets, putPreset, removePreset } from "./store";

/** Chooses a preset, makes one of the settings at hand, or takes one away. */
export function Presets() {
  const [naming, setNaming] = useState(false);
  const { settings } = current.value;
  const all = [...BUILT_IN, ...presets.value];
  const chosen = presetOf(settings, [...presets.value, ...BUILT_IN]);
  const own = presets.value.some((preset) => preset === chosen);
  const take = (id: string) => {
    const preset = all.find((one) => one.id === id);
    if (preset) saveSettings(withPreset(settings, preset));
  };
  return (
    <div class="field">
      <label class="field-name" for="preset">
        {t.preset}
      </label>
      <div class="field-row">
        <select id="preset" value={chosen?.id ?? ""} onChange={(event) => take(event.currentTarget.value)}>
          {!chosen && <option value="">{t.presetNone}</option>}
          {all.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
        {own ? (
          <button type="button" class="button" onClick={() => removePreset(chosen!.id)}>
            {t.presetDelete}
          </button>
        ) : (
          <button type="button" class="button" disabled={naming} onClick={() => setNaming(true)}>
            {t.presetSave}
          </button>
        )}
      </div>
      {naming && <NameBox done={() => setNaming(false)} />}
    </div>
  );
}

function NameBox({ done }: { done: () => void }) {
  const [name, setName] = useState("");
  const save = (event: Event) => {
    event.preventDefault();
    if (!name.trim()) return;
    const preset: Preset = { id: newId(), name: name.trim(), settings: current.peek().settings };
    putPreset(preset);
    done();
  };
  return (
    <form class="field-row" onSubmit={save}>
      <input
        aria-label={t.presetName}
        placeholder={t.presetName}
        value={name}
        ref={(input) => input?.focus()}
        onInput={(event) => setName(event.currentTarget.value)}
      />
      <button type="submit" class="button primary" disabled={!name.trim()}>
        {t.save}
      </button>
    </form>
  );
}
