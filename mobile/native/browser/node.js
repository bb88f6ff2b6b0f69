// What Node does for index.js. LiteRT.js 2.5 knows browsers alone: it gets a worker's `importScripts` while it is loaded.

import { readFile } from "node:fs/promises";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

export const bytesOf = async (file) => new Uint8Array(await readFile(String(file).startsWith("file:") ? fileURLToPath(file) : file));
export const ownCore = () => bytesOf(new URL("./kerasbert.wasm", import.meta.url));

const installed = () => join(dirname(createRequire(import.meta.url).resolve("@litertjs/core")), "..", "wasm/");

export async function startLiteRt(litert, folder = installed()) {
  const added = { importScripts, require: undefined, __dirname: undefined, __filename: undefined };
  const before = Object.fromEntries(Object.keys(added).map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]));
  function importScripts(address) {
    const path = address.startsWith("file:") ? fileURLToPath(address) : address;
    Object.assign(globalThis, { require: createRequire(pathToFileURL(path)), __dirname: dirname(path), __filename: path });
    runInThisContext(readFileSync(path, "utf8"), { filename: path });
  }
  globalThis.self ??= globalThis; // LiteRT.js asks for it later too
  Object.assign(globalThis, added);
  try {
    return await litert.loadLiteRt(String(folder));
  } finally {
    for (const [name, value] of Object.entries(before)) {
      if (value) Object.defineProperty(globalThis, name, value);
      else delete globalThis[name];
    }
  }
}
