// Text to answer in a browser: the portable core before and behind LiteRT.js (the npm package @litertjs/core).
//
//     import * as litert from "@litertjs/core";
//     await litert.loadLiteRt("node_modules/@litertjs/core/wasm/");
//     const runner = await Runner.open(core, litert, bytes);
//     (await runner.answer("a gripping film")).label;

import { CoreError } from "./kerasbert.js";

const PER_TOKEN = ["span", "tags"]; // kinds whose outputs are [row's length, C]

/** [{name, signature, dtype, pad}] of a bundle's settings. */
function readsOf({ inputs }) {
  return inputs.map((each) => ({ dtype: "int32", pad: 0, ...each }));
}

/** [{name, role, length, outputs}] by length. */
function bucketsOf({ signatures }) {
  const list = signatures.map(({ name, role, lengths, outputs }) => ({ name, role, length: Object.values(lengths)[0], outputs }));
  return list.sort((a, b) => a.length - b.length);
}

/** What other tasks of the page wait for, such as a click: a network on the processor leaves them no time. */
function pause() {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done(port1.close());
    port2.postMessage(0);
  });
}

function freed(tensors) {
  Object.values(tensors).forEach((tensor) => tensor.delete());
}

/** The steps of one text, whose states stay in LiteRT.js's tensors. */
class Steps {
  constructor(runner) {
    const steps = runner.buckets.filter(({ role }) => role === "decode_step");
    const { logits, ...moving } = steps[0].outputs;
    Object.assign(this, { runner, steps, logits, moving: Object.values(moving), step: null, read: {}, states: [{}] });
  }

  /** Reads a row; of a decoder alone what is read is the first state. */
  async begin(row) {
    const reading = this.runner.buckets.filter(({ role }) => role !== "decode_step");
    const [{ role }] = reading;
    if (role === "prefill" && row.ids.length < 2) return; // its last token is a step's
    const outputs = await this.runner.outputs(reading.find(({ length }) => length >= row.ids.length), row);
    if (role === "prefill") this.states = [outputs];
    else this.read = outputs;
  }

  #shape(name) {
    return this.runner.compiled.signatures[this.step.name].getInputDetails().find((each) => each.name === name).shape;
  }

  /** A state [1, heads, places, width] of more places: zeros behind those that there were. */
  #widened(name, tensor) {
    const [batch, heads, places, width] = this.#shape(name);
    const values = new Float32Array(batch * heads * places * width);
    if (tensor) {
      const [before, had] = [tensor.toTypedArray(), tensor.type.layout.dimensions[2]];
      for (let i = 0; i < batch * heads; i++)
        values.set(before.subarray(i * had * width, (i * had + Math.min(had, places)) * width), i * places * width);
    }
    return new this.runner.litert.Tensor(values, [batch, heads, places, width]);
  }

  #grow(least) {
    const old = this.states;
    this.step = this.steps.find(({ length }) => length >= least);
    this.states = old.map((state) => Object.fromEntries(this.moving.map((name) => [name, this.#widened(name, state[name])])));
    old.forEach(freed);
  }

  /** What `Writing.next` asks for -> logits [count, vocabulary]. */
  async run({ tokens, origins, column }) {
    const { litert, compiled } = this.runner;
    if (!(column < this.step?.length)) this.#grow(column + 1);
    const [made, found] = [[], []];
    const number = (name, value) => new litert.Tensor(new Int32Array([value]), Array.from(this.#shape(name)));
    const place = number("column", column);
    try {
      for (let i = 0; i < tokens.length; i++) {
        const token = number("token_ids", tokens[i]);
        const inputs = { ...this.read, ...this.states[origins[i]], token_ids: token, column: place };
        made.push(await compiled.run(this.step.name, inputs).finally(() => token.delete()));
        found.push(made[i][this.logits].toTypedArray());
      }
      const logits = new Float32Array(found.length * found[0].length);
      found.forEach((each, i) => logits.set(each, i * each.length));
      this.states.forEach(freed);
      this.states = made.splice(0);
      return logits;
    } finally {
      place.delete();
      made.forEach(freed);
    }
  }

  close() {
    [this.read, ...this.states].forEach(freed);
  }
}

export class Runner {
  /**
   * A .tflite that kerasbert-mobile compress wrote. litert: the module @litertjs/core, loaded; most: rows that an input may take;
   * options: of loadAndCompile.
   */
  static async open(core, litert, bytes, { rows: most = 1024, ...options } = {}) {
    if (!(most >= 1 && most <= 1024)) throw new CoreError(`rows is ${most}, expected 1 to 1024`);
    const model = core.model(bytes);
    try {
      if (model.settings.any_length) throw new CoreError("a file of any length, expected one with buckets: compress without --lengths any");
      const [reads, buckets] = [readsOf(model.settings), bucketsOf(model.settings)];
      const compiled = await litert.loadAndCompile(bytes, { accelerator: "wasm", ...options });
      return Object.assign(new Runner(), { model, litert, reads, buckets, most, compiled, running: 0, closed: false });
    } catch (error) {
      model.close();
      throw error;
    }
  }

  /** The array of one input for a row, padded to `length`. */
  #filled({ name, dtype, pad }, row, length) {
    if (name === "positions") return [new Int32Array([row.position]), [1, 1]];
    const array = new (dtype === "bool" ? Uint8Array : Int32Array)(length).fill(pad);
    if (name === "token_ids") array.set(row.ids);
    else if (name === "segment_ids") array.set(row.segments);
    else if (name === "padding_mask") array.fill(1, 0, row.ids.length);
    else throw new CoreError(`the input ${name}, expected token_ids, segment_ids, padding_mask or positions`);
    return [array, [1, length]];
  }

  /** The tensors that a signature gives for a row. */
  async outputs(bucket, row) {
    const inputs = {};
    try {
      for (const each of this.reads) inputs[each.signature] = new this.litert.Tensor(...this.#filled(each, row, bucket.length));
      return await this.compiled.run(bucket.name, inputs);
    } finally {
      freed(inputs);
    }
  }

  /** One row -> its outputs, in the shortest bucket that holds it. */
  async #run(row) {
    const bucket = this.buckets.find((each) => each.length >= row.ids.length);
    const outputs = await this.outputs(bucket, row);
    const values = outputs[Object.values(bucket.outputs)[0]].toTypedArray().slice();
    freed(outputs);
    const width = values.length / bucket.length;
    return PER_TOKEN.includes(this.model.kind) ? values.subarray(0, row.ids.length * width) : values;
  }

  #enter() {
    if (this.closed) throw new CoreError("it is closed");
    this.running++; // `close` frees nothing
  }

  #leave() {
    this.running--;
    if (this.closed) this.close();
  }

  /** One input -> its answer as an object; of one text a string, of several a list (a pair, a question and its context ...). */
  async answer(input, words = false, prompt = null) {
    const texts = Array.isArray(input) ? input : [input];
    if (this.model.kind === "generation" && texts.length === 1) return this.follow((model) => model.write(texts[0]));
    this.#enter();
    try {
      const rows = this.model.rows(texts, words, prompt);
      try {
        if (rows.length > this.most)
          throw new CoreError(`the input takes ${rows.length} rows of ${this.model.longest} tokens, expected at most ${this.most}: split it`);
        const outputs = [];
        for (let i = 0; i < rows.length; i++) outputs.push(await this.#run(rows.get(i)));
        return rows.answer(outputs);
      } finally {
        rows.close();
      }
    } finally {
      this.#leave();
    }
  }

  /**
   * The pieces of a text that is generated or scored, by an async generator that returns its answer.
   *
   * begin: the model -> a Writing. signal: an AbortSignal, which ends the text by its reason.
   */
  async *pieces(begin, signal) {
    this.#enter();
    let writing, steps;
    try {
      signal?.throwIfAborted();
      writing = begin(this.model);
      steps = new Steps(this);
      await steps.begin(writing.row);
      for (let logits = null, asked = {}; !asked.ended; ) {
        asked = writing.next(logits);
        if (asked.piece) yield asked.piece;
        await pause();
        signal?.throwIfAborted();
        if (this.closed) throw new CoreError("it is closed");
        logits = asked.tokens.length ? await steps.run(asked) : null;
      }
      return writing.answer();
    } finally {
      steps?.close();
      writing?.close();
      this.#leave();
    }
  }

  /** The answer alone. */
  async follow(begin, signal) {
    const pieces = this.pieces(begin, signal);
    for (;;) {
      const { done, value } = await pieces.next();
      if (done) return value;
    }
  }

  /** Ends a text that is generated. */
  close() {
    this.closed = true;
    if (this.running || !this.model.handle) return;
    this.compiled.delete();
    this.model.close();
  }
}
