// Opens a page of kerasbert.mobile.native.page in headless Chromium and does the jobs that stdin says, as json.
//
//     KERASBERT_NPM=FOLDER node chromium.mjs PAGE.html < jobs.json > results.json
//
// jobs: {scripts: lists of lines for the core (see script.py), sentences: [texts for the model within the page], screenshot: FILE}

import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { chromium } = createRequire(join(process.env.KERASBERT_NPM, "package.json"))("playwright-core");
const jobs = JSON.parse(readFileSync(0, "utf8"));
const folder = mkdtempSync(join(tmpdir(), "chromium-"));
const context = await chromium.launchPersistentContext(folder, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  viewport: { width: 900, height: 600 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});

// lines of a script -> lines of answers, in the page
function follow(lines) {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const bytes = (word) => new Uint8Array(word === "-" ? [] : word.match(/../g).map((pair) => parseInt(pair, 16)));
  const text = (word) => {
    try {
      return strict.decode(bytes(word)); // as an app gives it
    } catch {
      return bytes(word);
    }
  };
  const array = (ints) => Array.from(ints);
  let tokenizer, model, rows;
  const calls = {
    tokenizer(...words) {
      tokenizer?.close();
      const files = {};
      for (let i = 0; i < words.length; i += 2) files[strict.decode(bytes(words[i]))] = bytes(words[i + 1]);
      tokenizer = core.tokenizer(files);
    },
    text(word) {
      const { ids, starts, ends } = tokenizer.tokenize(text(word));
      return [...[ids, starts, ends].map(array), array(tokenizer.encode(text(word)))];
    },
    units(word) {
      const units = String.fromCharCode(...word.match(/..../g).map((unit) => parseInt(unit, 16)));
      const { ids, starts, ends } = tokenizer.tokenize(units);
      return [...[ids, starts, ends].map(array), array(tokenizer.encode(units))];
    },
    pack(length, first, second) {
      const { ids, segments, truncated } = tokenizer.pack(text(first), second ? text(second) : null, Number(length));
      return [array(ids), array(segments), truncated];
    },
    model(bundle) {
      model?.close();
      model = core.model(bytes(bundle));
      return [model.kind, model.longest];
    },
    input(words, ...texts) {
      rows = model.rows(texts.map(text), words === "1");
      return Array.from({ length: rows.length }, (_, i) => {
        const { ids, segments, position, truncated } = rows.get(i);
        return [array(ids), array(segments), position, truncated];
      });
    },
    answer(...floats) {
      const found = rows.answer(floats.map((each) => new Float32Array(bytes(each).buffer)));
      rows.close();
      return found;
    },
  };
  return lines.map((line) => {
    const [name, ...words] = line.split(" ");
    try {
      const found = calls[name](...words);
      return found === undefined ? [] : [JSON.stringify(found)];
    } catch (error) {
      return [`error ${error.message}`];
    }
  }).flat().join("\n");
}

try {
  const page = context.pages()[0] ?? (await context.newPage());
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  const begin = performance.now();
  await page.goto(process.argv[2].startsWith("http") ? process.argv[2] : pathToFileURL(resolve(process.argv[2])).href);
  await page.waitForFunction("globalThis.loaded", null, { timeout: 120_000 });
  const result = { loaded: performance.now() - begin, state: await page.textContent("#state"), version: context.browser()?.version() };
  result.answered = [];
  for (const script of jobs.scripts ?? []) result.answered.push(await page.evaluate(follow, script));
  if (jobs.sentences) {
    result.answers = await page.evaluate(async (sentences) => {
      const found = [];
      for (const sentence of sentences) {
        const begin = performance.now();
        const answer = await globalThis.answer(sentence);
        found.push({ answer, milliseconds: performance.now() - begin });
      }
      return found;
    }, jobs.sentences);
    await page.fill("textarea", jobs.sentences[0]);
    await page.waitForFunction("document.getElementById('answer').textContent");
    result.typed = await page.textContent("#answer");
  }
  if (jobs.screenshot) await page.screenshot({ path: jobs.screenshot });
  process.stdout.write(JSON.stringify({ ...result, errors }));
} finally {
  await context.close();
  rmSync(folder, { recursive: true, force: true });
}
