import { t } from "../texts";
import { PLAIN, type Preset, type Settings } from "./types";

/** Presets that are always there. They set how words are drawn, and leave the system prompt alone. */
export const BUILT_IN: readonly Preset[] = [
  { id: "default", name: t.presetDefault, settings: PLAIN },
  { id: "precise", name: t.presetPrecise, settings: { ...PLAIN, temperature: 0 } },
  { id: "balanced", name: t.presetBalanced, settings: { ...PLAIN, temperature: 0.7, topP: 0.9 } },
  { id: "creative", name: t.presetCreative, settings: { ...PLAIN, temperature: 1, topP: 0.95 } },
];

/** The settings with a preset in force. */
export function withPreset(settings: Settings, preset: Preset): Settings {
  const system = preset.settings.system || settings.system;
  return { ...preset.settings, system };
}

/** The preset that these settings are, if they are one. */
export function presetOf(settings: Settings, presets: readonly Preset[]): Preset | null {
  return presets.find((preset) => sameSettings(withPreset(settings, preset), settings)) ?? null;
}

function sameSettings(one: Settings, other: Settings): boolean {
  return (Object.keys(PLAIN) as (keyof Settings)[]).every((name) => one[name] === other[name]);
}
