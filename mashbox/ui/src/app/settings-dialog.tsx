import { forgetKey, hasKey } from "../api/key";
import { hasThinkingSwitch, model, recommendedFor } from "../api/server";
import type { Settings } from "../chat/types";
import { t } from "../texts";
import { saveSettings } from "./actions";
import { Dialog } from "./dialog";
import { exportJson, importFile } from "./exchange";
import { NumberField } from "./number-field";
import { Presets } from "./presets-field";
import { current, listed } from "./store";
import { settingsShown, theme, type Theme } from "./view";

/** How this conversation is answered, and how this browser shows the page. */
export function SettingsDialog() {
  if (!settingsShown.value) return null;
  return (
    <Dialog title={t.settings} class="settings" onClose={() => (settingsShown.value = false)}>
      <ConversationSettings />
      <BrowserSettings />
    </Dialog>
  );
}

function ConversationSettings() {
  const { id, settings } = current.value;
  const set = (change: Partial<Settings>) => saveSettings({ ...current.peek().settings, ...change });
  const { temperature, top_p } = recommendedFor(settings);
  return (
    <section key={id}>
      <h3>{t.thisConversation}</h3>
      <Presets />
      <label class="field">
        <span class="field-name">{t.systemPrompt}</span>
        <textarea
          rows={4}
          placeholder={t.systemHint}
          value={settings.system}
          onInput={(event) => set({ system: event.currentTarget.value })}
        />
      </label>
      <NumberField
        name={t.temperature}
        hint={t.temperatureHint}
        value={settings.temperature}
        unset={temperature}
        least={0}
        most={4}
        step={0.1}
        set={(temperature) => set({ temperature })}
      />
      <NumberField
        name={t.topP}
        hint={t.topPHint}
        value={settings.topP}
        unset={top_p}
        least={0.01}
        most={1}
        step={0.01}
        set={(topP) => set({ topP })}
      />
      <NumberField
        name={t.maxTokens}
        hint={t.maxTokensHint}
        value={settings.maxTokens}
        least={1}
        most={model.value?.max_model_len ?? 1 << 20}
        step={1}
        set={(maxTokens) => set({ maxTokens })}
      />
      {hasThinkingSwitch.value && (
        <label class="check">
          <input
            type="checkbox"
            checked={settings.thinking}
            onChange={(event) => set({ thinking: event.currentTarget.checked })}
          />
          <span>
            {t.thinkingSwitch}
            <small>{t.thinkingHint}</small>
          </span>
        </label>
      )}
    </section>
  );
}

function BrowserSettings() {
  const themes: [Theme, string][] = [
    ["system", t.themeSystem],
    ["light", t.themeLight],
    ["dark", t.themeDark],
  ];
  return (
    <section>
      <h3>{t.thisBrowser}</h3>
      <fieldset class="choice">
        <legend class="field-name">{t.theme}</legend>
        {themes.map(([value, label]) => (
          <label key={value}>
            <input
              type="radio"
              name="theme"
              checked={theme.value === value}
              onChange={() => (theme.value = value)}
            />
            <span>{label}</span>
          </label>
        ))}
      </fieldset>
      <div class="field">
        <span class="field-name" id="exchange">
          {t.conversations}
        </span>
        <div class="field-row" role="group" aria-labelledby="exchange">
          <button
            type="button"
            class="button"
            disabled={!listed.value.length}
            onClick={() => void exportJson(listed.peek().map(({ id }) => id))}
          >
            {t.exportAll}
          </button>
          <label class="button file-button">
            {t.import}
            <input
              type="file"
              accept=".json,.md,application/json,text/markdown"
              class="visually-hidden"
              onChange={(event) => {
                const [file] = event.currentTarget.files ?? [];
                event.currentTarget.value = "";
                if (file) void importFile(file).then(() => (settingsShown.value = false));
              }}
            />
          </label>
        </div>
      </div>
      {hasKey.value && (
        <div class="field">
          <span class="field-name">{t.key}</span>
          <button type="button" class="button" onClick={forgetKey}>
            {t.keyForget}
          </button>
        </div>
      )}
    </section>
  );
}
