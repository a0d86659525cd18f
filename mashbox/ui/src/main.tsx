import { render } from "preact";
import { App } from "./app/app";
import { open } from "./app/actions";
import { load } from "./app/store";

await load();
await open(location.hash.slice(1) || null);
const app = document.getElementById("app")!;
render(<App />, app);
// With all that is kept of the open conversation.
app.ariaBusy = "false";
