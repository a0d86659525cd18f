import { render } from "preact";
import { App } from "./app/app";
import { open } from "./app/actions";
import { load } from "./app/store";

await load();
await open(location.hash.slice(1) || null);
render(<App />, document.getElementById("app")!);
