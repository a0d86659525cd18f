/** Languages that have colours; `languages.ts`, which only the worker loads, knows where each is. */
export const languageNames: ReadonlySet<string> = new Set(
  (
    "bash c clojure cmake cpp csharp css dart diff dockerfile elixir erlang fortran fsharp go graphql groovy " +
    "haskell http ini java javascript json julia kotlin latex less lua makefile markdown matlab nginx nix " +
    "objectivec ocaml perl php powershell protobuf python r ruby rust scala scheme scss shell sql swift " +
    "typescript verilog vim x86asm xml yaml"
  ).split(" "),
);

/** Other names that models give them. */
const aliases: Readonly<Record<string, string>> = {
  asm: "x86asm", bat: "powershell", "c++": "cpp", cc: "cpp", cjs: "javascript", clj: "clojure", console: "shell",
  cs: "csharp", "c#": "csharp", cxx: "cpp", docker: "dockerfile", ex: "elixir", erl: "erlang", "f#": "fsharp",
  f90: "fortran", gql: "graphql", golang: "go", gradle: "groovy", h: "c", hpp: "cpp", hs: "haskell", htm: "xml",
  html: "xml", jl: "julia", js: "javascript", json5: "json", jsonc: "json", jsonl: "json", jsx: "javascript",
  kt: "kotlin", make: "makefile", md: "markdown", mjs: "javascript", ml: "ocaml", "obj-c": "objectivec",
  objc: "objectivec", "objective-c": "objectivec", patch: "diff", pl: "perl", proto: "protobuf", ps1: "powershell",
  pwsh: "powershell", py: "python", python3: "python", pycon: "python", rb: "ruby", rs: "rust", sh: "bash",
  sass: "scss", svg: "xml", tex: "latex", toml: "ini", ts: "typescript", tsx: "typescript", vue: "xml", yml: "yaml",
  zsh: "bash",
};

/** The language's own name, or null if it has no colours here. */
export function languageName(name: string): string | null {
  if (languageNames.has(name)) return name;
  return Object.hasOwn(aliases, name) ? aliases[name]! : null;
}
