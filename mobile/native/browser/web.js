// What a browser does for index.js.

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

export const bytesOf = fetched;
export const ownCore = () => fetched(new URL("./kerasbert.wasm", import.meta.url));

/** By default from where npm installs it beside this package. */
export const startLiteRt = (litert, folder = new URL("../@litertjs/core/wasm/", import.meta.url)) => litert.loadLiteRt(String(folder));
