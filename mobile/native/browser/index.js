// Text to typed answers in a browser and in Node: the portable core (kerasbert.wasm) before and behind LiteRT.js.
//
//     import { Classifier } from "kerasbert";
//     const classifier = await Classifier.open("reviews.tflite");
//     const { label, score } = await classifier.answer("a gripping film");
//
// Offsets count as strings do: `text.slice(start, end)` is the answer, emoji included. index.d.ts has the types.

import * as litert from "@litertjs/core";
import { bytesOf, ownCore, startLiteRt } from "#platform";
import { Core, CoreError } from "./kerasbert.js";
import { Runner } from "./litert.js";

export { Core, CoreError, Runner };

const OPTIONS = ["rows", "accelerator", "gpuOptions", "webNNOptions"]; // all but the first are LiteRT.js's

let loading;

/** The core and LiteRT.js, once. litert: the address of LiteRT.js's folder `wasm`, or of one of its scripts. */
export function load(options = {}) {
  const begin = async () => {
    if (!litert.getGlobalLiteRtPromise()) await startLiteRt(litert, options.litert); // an app may have loaded it
    return Core.open(await ownCore());
  };
  loading ??= begin().catch((error) => {
    loading = undefined;
    throw error;
  });
  return loading;
}

/** Of each code point of a text, and of its end, the place in the string. */
function placesOf(text) {
  const places = [0];
  for (const character of text) places.push(places[places.length - 1] + character.length);
  return places;
}

/** A span whose offsets are those of the string. */
function spanOf(each, source, places) {
  const [start, end] = [places[each.start], places[each.end]];
  return { text: source.slice(start, end), label: each.label ?? "", score: each.score, start, end };
}

function labelsOf(names, scores, isChosen) {
  return names.map((name, id) => ({ name, score: scores[id], id, chosen: isChosen(name, id) }));
}

/** The bytes of a file: themselves, or those at its address (in Node at a path too). */
async function contentOf(file) {
  if (typeof file === "string" || file instanceof URL) return bytesOf(file);
  return file instanceof ArrayBuffer ? new Uint8Array(file) : file;
}

class Typed {
  /** A file: its bytes, or its address (in Node a path too). options: see OPTIONS. */
  static async open(file, options = {}) {
    const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
    if (unknown) throw new CoreError(`no option ${unknown}, expected ${OPTIONS.join(", ")}`);
    const core = await load();
    const runner = await Runner.open(core, litert, await contentOf(file), options);
    const { kind } = runner.model;
    if (this.kinds.includes(kind)) return Object.assign(new this(), { runner });
    runner.close();
    throw new CoreError(`the file answers with ${kind}, expected ${this.kinds.join(" or ")}`);
  }

  close() {
    this.runner.close();
  }
}

export class Classifier extends Typed {
  static kinds = ["classification", "multi_label"];

  async answer(...texts) {
    const found = await this.runner.answer(texts);
    const names = this.runner.model.settings.labels;
    const chosen = found.labels ?? [found.label];
    const labels = labelsOf(names, names.map((name) => found.scores[name]), (name) => chosen.includes(name));
    const best = labels.reduce((a, b) => (b.score > a.score ? b : a));
    return { label: best.name, score: best.score, labels, truncated: found.truncated ?? false };
  }
}

export class Tagger extends Typed {
  static kinds = ["tags"];

  async answer(text) {
    const words = Array.isArray(text);
    const source = words ? text.join(" ") : text;
    const found = await this.runner.answer(text, words);
    const places = placesOf(source);
    const word = (_, i) => ({ label: found.labels[i], score: found.scores[i], start: found.starts[i], end: found.ends[i] });
    const spans = (list) => list.map((each) => spanOf(each, source, places));
    return { words: spans(found.words.map(word)), entities: spans(found.entities) };
  }
}

export class QuestionAnswerer extends Typed {
  static kinds = ["span"];

  async answer(question, context) {
    const { alternatives = [], truncated = false, ...best } = await this.runner.answer([question, context]);
    const places = placesOf(context);
    const [first, ...others] = [best, ...alternatives].map((each) => spanOf(each, context, places));
    return { ...first, alternatives: others, truncated };
  }
}

export class Embedder extends Typed {
  static kinds = ["vector"];

  async answer(...texts) {
    return this.#vector(await this.runner.answer(texts));
  }

  async prompted(prompt, text) {
    return this.#vector(await this.runner.answer(text, false, prompt));
  }

  #vector({ values, truncated = false }) {
    return { values: Float32Array.from(values), truncated };
  }
}

/** Cosine of the angle between two vectors of one model; 0 where one is 0. */
export function cosine(one, other) {
  let [product, a, b] = [0, 0, 0];
  for (let i = 0; i < one.length; i++) {
    product += one[i] * other[i];
    a += one[i] * one[i];
    b += other[i] * other[i];
  }
  return a * b === 0 ? 0 : product / Math.sqrt(a * b);
}

/** Texts that kerasbert-mobile index keeps with vectors of the file of an Embedder. */
export class Index {
  static async open(file, embedder) {
    const core = await load();
    return Object.assign(new this(), { stored: core.index(await contentOf(file), embedder.runner.model) });
  }

  get size() {
    return this.stored.size;
  }

  /** The texts of the largest cosines with `values` of an answer of the embedder. */
  nearest(values, top = 5) {
    return this.stored.nearest(values, top);
  }

  close() {
    this.stored.close();
  }
}

export class Regressor extends Typed {
  static kinds = ["regression"];

  async answer(...texts) {
    const { value, truncated = false } = await this.runner.answer(texts);
    return { value, truncated };
  }
}

export class Chooser extends Typed {
  static kinds = ["choice"];

  async answer(text, choices) {
    const { index, score, scores, truncated = false } = await this.runner.answer([text, ...choices]);
    return { index, score, choices: labelsOf(choices, scores, (_, id) => id === index), truncated };
  }
}

export class MaskFiller extends Typed {
  static kinds = ["tokens"];

  async answer(text) {
    const found = await this.runner.answer(text);
    const token = ({ token, score, id }, i) => ({ name: token, score, id, chosen: i === 0 });
    return { text: found.text, tokens: found.tokens.map((mask) => mask.map(token)), truncated: found.truncated ?? false };
  }
}

/** An answer of the core as a Writer gives it. */
function writtenOf({ text, score, truncated = false, sequences = [{ text, score }] }) {
  return { text, score, sequences, truncated };
}

export class Writer extends Typed {
  static kinds = ["generation"];

  async generate(text, settings = {}, { signal } = {}) {
    return writtenOf(await this.runner.follow((model) => model.write(text, settings), signal));
  }

  stream(text, settings = {}, { signal } = {}) {
    const { runner } = this;
    return {
      answer: null,
      async *[Symbol.asyncIterator]() {
        this.answer = writtenOf(yield* runner.pieces((model) => model.write(text, settings, true), signal));
      },
    };
  }

  async score(text, { signal } = {}) {
    const found = await this.runner.follow((model) => model.score(text), signal);
    const { tokens, log_probabilities: logProbabilities, score, perplexity, truncated = false } = found;
    return { tokens, logProbabilities, score, perplexity, truncated };
  }
}
