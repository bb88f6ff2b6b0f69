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

/** [{name, length, output}] by length, of the signatures that answer. */
function bucketsOf({ signatures }) {
  const list = signatures.map((each) => ({ name: each.name, length: each.lengths.S, output: Object.values(each.outputs)[0] }));
  return list.sort((a, b) => a.length - b.length);
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
      return Object.assign(new Runner(), { model, litert, reads, buckets, most, compiled });
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

  /** One row -> its outputs, in the shortest bucket that holds it. */
  async #run(row) {
    const bucket = this.buckets.find((each) => each.length >= row.ids.length);
    const inputs = {};
    for (const each of this.reads) inputs[each.signature] = new this.litert.Tensor(...this.#filled(each, row, bucket.length));
    try {
      const outputs = await this.compiled.run(bucket.name, inputs);
      const values = outputs[bucket.output].toTypedArray().slice();
      Object.values(outputs).forEach((tensor) => tensor.delete());
      const width = values.length / bucket.length;
      return PER_TOKEN.includes(this.model.kind) ? values.subarray(0, row.ids.length * width) : values;
    } finally {
      Object.values(inputs).forEach((tensor) => tensor.delete());
    }
  }

  /** One input -> its answer as an object; of one text a string, of several a list (a pair, a question and its context ...). */
  async answer(input, words = false) {
    const rows = this.model.rows(Array.isArray(input) ? input : [input], words);
    try {
      if (rows.length > this.most)
        throw new CoreError(`the input takes ${rows.length} rows of ${this.model.longest} tokens, expected at most ${this.most}: split it`);
      const outputs = [];
      for (let i = 0; i < rows.length; i++) outputs.push(await this.#run(rows.get(i)));
      return rows.answer(outputs);
    } finally {
      rows.close();
    }
  }

  close() {
    this.compiled.delete();
    this.model.close();
  }
}
