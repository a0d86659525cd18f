/** Every text that the page shows, in English. Another language is another object of this shape. */

const number = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const day = new Intl.DateTimeFormat("en", { month: "long", year: "numeric" });

const some = (count: number, one: string, many: string) => `${number.format(count)} ${count === 1 ? one : many}`;

/** Seconds in words: `0.42 s`, `12.3 s`, `2 min 5 s`. */
function seconds(value: number): string {
  if (value < 1) return `${value.toFixed(2)} s`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

export const t = {
  product: "mashbox",
  you: "You",
  assistant: "Assistant",

  // Side bar
  conversations: "Conversations",
  newConversation: "New conversation",
  untitled: "New conversation",
  search: "Search conversations",
  searchKeys: "Ctrl K",
  searchNothing: (query: string) => `Nothing found for “${query}”.`,
  searchCount: (count: number) => some(count, "conversation found", "conversations found"),
  noConversations: "Conversations that you begin are kept here, in this browser.",
  today: "Today",
  yesterday: "Yesterday",
  lastWeek: "Last 7 days",
  month: (time: number) => day.format(time),
  openSidebar: "Show conversations",
  closeSidebar: "Hide conversations",
  more: (title: string) => `Actions for ${title}`,
  rename: "Rename",
  newTitle: "Title",
  exportJson: "Export as JSON",
  exportMarkdown: "Export as Markdown",
  delete: "Delete",
  deleted: (title: string) => `Deleted “${title}”.`,
  undo: "Undo",
  answering: "Answering",
  notKept: "This browser keeps no data for this page: conversations last until you close it.",

  // Conversation
  messages: "Messages",
  message: "Message",
  messageHint: (model: string | null) => (model ? `Message ${model}` : "Message the model"),
  send: "Send",
  stop: "Stop",
  attach: "Attach text files",
  removeFile: (name: string) => `Remove ${name}`,
  dropHere: "Drop text files to add them to your message",
  thinkingSwitch: "Think first",
  copy: "Copy",
  copied: "Copied",
  copyFailed: "The browser did not allow to copy.",
  edit: "Edit",
  retry: "Retry",
  cancel: "Cancel",
  save: "Save",
  close: "Close",
  sendEdited: "Send",
  editMessage: "Edit message",
  previousVersion: "Previous version",
  nextVersion: "Next version",
  version: (index: number, count: number) => `Version ${index} of ${count}`,
  toEnd: "Go to the end",
  answerBegun: "The model is answering.",
  answerDone: "The answer is complete.",
  answerStopped: "Stopped.",
  answerLength: "The answer reached its length limit.",
  answerUnfinished: "This answer was not finished: the page was closed while it was written.",
  reading: "Reading your message",
  waitingInLine: "Waiting in line",
  lines: (count: number) => some(count, "line", "lines"),

  // Beginning
  emptyTitle: "What's on your mind?",
  emptyText: "The model runs on your own machine, and so does this page. Nothing you write leaves it.",
  starters: [
    { title: "Explain a thing", text: "Explain how a hash table works, with a small example in Python." },
    { title: "Write a draft", text: "Write a friendly reply that declines an invitation to a conference in May." },
    { title: "Think it through", text: "What should I consider before I move a small web shop to a new server?" },
    { title: "Make a table", text: "Compare bicycles, trams and buses for a city of 200,000 people in a table." },
  ],

  // Figures and status
  perSecond: (value: number) => `${short.format(value)} tokens/s`,
  firstToken: (ms: number) => `first token after ${seconds(ms / 1000)}`,
  cached: (cached: number, all: number) => `${number.format(cached)} of ${number.format(all)} prompt tokens cached`,
  answerTokens: (count: number) => some(count, "token", "tokens"),
  inLine: (ms: number) => `${seconds(ms / 1000)} in line`,
  contextUsed: "Context used",
  context: (used: number, all: number) => `${number.format(used)} of ${number.format(all)} tokens`,
  contextUnknown: (all: number) => `${number.format(all)} tokens of context`,
  contextFull: "The conversation nearly fills the model's context. Begin a new one, or edit an earlier message.",
  slots: (busy: number, all: number) => `${number.format(busy)} of ${number.format(all)} slots busy`,
  busy: (busy: number) => `${number.format(busy)} running`,
  waiting: (count: number) => `${number.format(count)} waiting`,
  status: "Server status",
  ready: "Ready",
  seconds,

  // Banners
  loading: "The model is loading.",
  loadingFor: (time: number) => `The model is loading (${seconds(time)}).`,
  loadingStage: (stage: string, share: number) => `Loading the model: ${stage}, ${Math.floor(share * 100)} %`,
  loadingWait: "Your message is sent when it is ready.",
  restarting: "The model's process stopped and is starting again.",
  offline: "No connection to the server. Trying again …",
  offlineHint: "Is the tunnel up? What you write here is kept.",
  full: (left: number) => `The line is full. Trying again in ${left} s.`,
  fullNow: "The line is full. Trying again …",
  tryNow: "Try now",
  connectionLost: "The connection to the server was lost.",
  answerCutOff: "The connection was lost in the middle of the answer.",
  notUnderstood: "The server sent something that this page does not understand.",
  httpError: (status: number) => `The server answered with status ${status}.`,

  // Key
  keyNeeded: "Key needed",
  keyText: "This server asks for a key. Whoever started it can make one with “mashbox keys add”.",
  key: "Key",
  keyWrong: "The server does not take this key.",
  keyRemember: "Keep it in this browser",
  keySessionOnly: "Otherwise it is forgotten when this tab is closed.",
  keyUse: "Use key",
  keyForget: "Forget the key",

  // Settings
  settings: "Settings",
  thisConversation: "This conversation",
  preset: "Preset",
  presetNone: "Own settings",
  presetSave: "Save as preset",
  presetName: "Name of the preset",
  presetDelete: "Delete preset",
  presetPrecise: "Precise",
  presetBalanced: "Balanced",
  presetCreative: "Creative",
  systemPrompt: "System prompt",
  systemHint: "What the model should know or heed in the whole conversation",
  temperature: "Temperature",
  temperatureHint: "0 always takes the likeliest word; higher is freer. Empty: the server's own.",
  topP: "Top-p",
  topPHint: "Draw only from the likeliest words that together have this share.",
  maxTokens: "Most tokens of an answer",
  maxTokensHint: "Empty: as many as fit.",
  thinkingHint: "Models that can will think before they answer.",
  byDefault: "default",
  outOfRange: (least: number, most: number) => `From ${number.format(least)} to ${number.format(most)}.`,
  thisBrowser: "This browser",
  theme: "Appearance",
  themeSystem: "As the system",
  themeLight: "Light",
  themeDark: "Dark",
  exportAll: "Export all",
  import: "Import",
  imported: (count: number) => `${some(count, "conversation", "conversations")} imported.`,
  importForeign: "The file is no export of this page.",
  importNewer: "The file was written by a newer version of this page.",
  importBroken: (place: number) => `Conversation ${place} of the file is damaged; nothing was imported.`,

  // Files
  fileImage: (name: string) => `${name}: images can't be added, since the model reads text only.`,
  fileMedia: (name: string) => `${name}: audio and video can't be added, since the model reads text only.`,
  fileNotText: (name: string) => `${name} is no text file.`,
  fileTooLarge: (name: string, mib: number) => `${name} is larger than ${mib} MiB.`,
  fileEmpty: (name: string) => `${name} is empty.`,
  fileUnreadable: (name: string) => `${name} can't be read. Folders can't be added.`,
} as const;
