import { render } from "preact";
import { followAddress } from "./app/address";
import { App } from "./app/app";
import { load } from "./app/store";

await load();
await followAddress();
const app = document.getElementById("app")!;
render(<App />, app);
// With all that is kept of the open conversation.
app.ariaBusy = "false";
