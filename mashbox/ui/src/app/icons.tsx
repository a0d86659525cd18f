import type { ComponentChildren } from "preact";

/** Line icons on a grid of 20; decoration only, names are on the buttons. */
function icon(children: ComponentChildren) {
  return () => (
    <svg class="icon" viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" focusable="false">
      {children}
    </svg>
  );
}

export const PlusIcon = icon(<path d="M10 4.5v11M4.5 10h11" />);
export const ComposeIcon = icon(<path d="M9 4.5H6A2.5 2.5 0 0 0 3.5 7v7A2.5 2.5 0 0 0 6 16.5h7a2.5 2.5 0 0 0 2.5-2.5v-3M14.8 3.7a1.4 1.4 0 0 1 2 2L10.5 12 8 12.5l.5-2.5z" />);
export const SearchIcon = icon(<><circle cx="9" cy="9" r="5" /><path d="m13 13 3.5 3.5" /></>);
export const PanelIcon = icon(<><rect x="3" y="4" width="14" height="12" rx="2.5" /><path d="M8 4v12" /></>);
export const SlidersIcon = icon(<><path d="M3.5 6.5h7M15 6.5h1.5M3.5 13.5H5M9.5 13.5h7" /><circle cx="12.75" cy="6.5" r="2.25" /><circle cx="7.25" cy="13.5" r="2.25" /></>);
export const SendIcon = icon(<path d="M10 16V4.5M5 9.5l5-5 5 5" />);
export const StopIcon = icon(<rect x="5.5" y="5.5" width="9" height="9" rx="1.5" class="filled" />);
export const ClipIcon = icon(<path d="m15.5 9-5.7 5.7a3.2 3.2 0 0 1-4.5-4.5L11 4.5a2.1 2.1 0 0 1 3 3l-5.6 5.6a1 1 0 0 1-1.5-1.4l5-5" />);
export const CopyIcon = icon(<><rect x="7" y="7" width="9.5" height="9.5" rx="2" /><path d="M13 7V5.5a2 2 0 0 0-2-2H5.5a2 2 0 0 0-2 2V11a2 2 0 0 0 2 2H7" /></>);
export const CheckIcon = icon(<path d="m4.5 10.5 3.7 3.7 7.3-8" />);
export const PencilIcon = icon(<path d="M12.5 4.8a1.6 1.6 0 0 1 2.7 2.3l-.5.5-7.9 7.9-3.3.700.7-3.3zM11 6.5 13.5 9" />);
export const RetryIcon = icon(<path d="M16 10a6 6 0 1 1-2-4.5L16 7.3M16 3.7v3.6h-3.6" />);
export const BackIcon = icon(<path d="m11.5 5.5-4.5 4.5 4.5 4.5" />);
export const ForwardIcon = icon(<path d="m8.5 5.5 4.5 4.5-4.5 4.5" />);
export const DownIcon = icon(<path d="M10 4.5V15M5.5 10.8 10 15.3l4.5-4.5" />);
export const MoreIcon = icon(<g class="filled"><circle cx="5" cy="10" r="1.2" /><circle cx="10" cy="10" r="1.2" /><circle cx="15" cy="10" r="1.2" /></g>);
export const CloseIcon = icon(<path d="m5.5 5.5 9 9M14.5 5.5l-9 9" />);
export const FileIcon = icon(<path d="M11.5 3.5H7A1.5 1.5 0 0 0 5.5 5v10A1.5 1.5 0 0 0 7 16.5h6a1.5 1.5 0 0 0 1.5-1.5V6.5zM11.5 3.5v3h3" />);
export const BulbIcon = icon(<path d="M7.5 13.5c0-1.5-2-2.5-2-5.2a4.5 4.5 0 0 1 9 0c0 2.7-2 3.7-2 5.2zM8 16.5h4" />);
