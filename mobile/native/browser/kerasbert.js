// kerasbert's portable core (kerasbert.h) in JavaScript, over its WebAssembly module: text -> rows of token ids, and outputs of a
// model -> answers. The interpreter that runs the .tflite is the caller's; litert.js brings LiteRT.js.
//
//     const core = await Core.open(await (await fetch("kerasbert.wasm")).arrayBuffer());
//     const model = core.model(bytes);              // of a .tflite that kerasbert-mobile compress wrote
//     const rows = model.rows(["a gripping film"]); // rows.get(0).ids
//     rows.answer([outputs]);                       // the answer as the Python runtime's to_json gives it
//
// A text is a string or its UTF-8 as a Uint8Array. Offsets are code points, not JavaScript's UTF-16 units: see `slice`.
// Tokenizers, models and rows hold memory of the module until `close`.

const VERSION = 2; // KB_VERSION
const UNSUPPORTED = 3; // KB_UNSUPPORTED
const MESSAGE = 256; // bytes of kb_message
const utf8 = new TextEncoder();
const strings = new TextDecoder();
const utf16 = new TextDecoder("utf-8", { ignoreBOM: true }); // of texts, in which U+FEFF is a character

/** What the core says of a call that failed. `unsupported`: only the Python runtime knows this file, tokenizer or answer. */
export class CoreError extends Error {
  constructor(message, unsupported = false) {
    super(message);
    this.name = "CoreError";
    this.unsupported = unsupported;
  }
}

/** The part of a text between two offsets of an answer, which are code points. */
export function slice(text, start, end) {
  return Array.from(text).slice(start, end).join("");
}

/** The bundle of a .tflite: the zip behind its last byte. All bytes where there is none, so that the core refuses them. */
function bundleOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = bytes.length - 22; at >= Math.max(0, bytes.length - 65557); at--) {
    if (view.getUint32(at, true) !== 0x06054b50) continue;
    const begin = at - view.getUint32(at + 12, true) - view.getUint32(at + 16, true);
    return begin > 0 ? bytes.subarray(begin) : bytes;
  }
  return bytes;
}

/** Memory of one call, given back at its end. */
class Arena {
  constructor(core) {
    this.core = core;
    this.taken = [];
    this.message = this.room(MESSAGE);
  }

  room(size) {
    const at = this.core.functions.malloc(size || 1);
    if (at === 0) throw new CoreError("out of memory");
    this.taken.push(at);
    return at;
  }

  bytes(data) {
    const at = this.room(data.length);
    this.core.bytes(at, data.length).set(data);
    return at;
  }

  /** Strings or bytes -> an array of kb_text. */
  texts(list) {
    const at = this.room(8 * list.length);
    list.forEach((text, i) => {
      const data = typeof text === "string" ? utf8.encode(text) : text;
      this.core.put(at + 8 * i, this.bytes(data), data.length);
    });
    return at;
  }

  check(status) {
    if (status === 0) return;
    const said = strings.decode(this.core.bytes(this.message, MESSAGE).slice()).split("\0")[0];
    const unsupported = status === UNSUPPORTED;
    throw new CoreError(unsupported ? `the portable core does not read ${said}` : said, unsupported);
  }

  free() {
    this.taken.forEach((at) => this.core.functions.free(at));
  }
}

export class Core {
  /** The core of a WebAssembly module, or of its bytes. */
  static async open(source) {
    const made = await WebAssembly.instantiate(source);
    const core = new Core();
    core.functions = (made.instance ?? made).exports;
    core.functions._initialize();
    const version = core.functions.kb_version();
    if (version !== VERSION) throw new CoreError(`the portable core has version ${version}, expected ${VERSION}`);
    return core;
  }

  bytes(at, size) {
    return new Uint8Array(this.functions.memory.buffer, at, size);
  }

  ints(at, count) {
    return new Int32Array(this.functions.memory.buffer, at, count).slice();
  }

  word(at) {
    return new DataView(this.functions.memory.buffer).getUint32(at, true);
  }

  put(at, ...words) {
    const view = new DataView(this.functions.memory.buffer);
    words.forEach((word, i) => view.setUint32(at + 4 * i, word, true));
  }

  string(at, size) {
    return utf16.decode(this.bytes(at, size).slice());
  }

  /** `call(arena)`, and the memory that it took is given back. */
  within(call) {
    const arena = new Arena(this);
    try {
      return call(arena);
    } finally {
      arena.free();
    }
  }

  /** The tokenizer of the files that a tokenizer's `save` writes: {name: Uint8Array}. */
  tokenizer(files) {
    return this.within((arena) => {
      const [array, handle] = [arena.texts(Object.entries(files).flat()), arena.room(4)];
      arena.check(this.functions.kb_tokenizer_open(array, Object.keys(files).length, handle, arena.message));
      return new Tokenizer(this, this.word(handle), true);
    });
  }

  /** The model of a .tflite that kerasbert-mobile compress wrote (Uint8Array), or of its bundle alone. */
  model(bytes) {
    return this.within((arena) => {
      const [bundle, handle] = [bundleOf(bytes), arena.room(4)];
      arena.check(this.functions.kb_model_open(arena.bytes(bundle), bundle.length, handle, arena.message));
      return new Model(this, this.word(handle));
    });
  }

  /** The texts of a file that kerasbert-mobile index wrote (Uint8Array) by the file of a model. */
  index(bytes, model) {
    const memory = this.functions.malloc(bytes.length || 1);
    if (memory === 0) throw new CoreError("out of memory");
    this.bytes(memory, bytes.length).set(bytes);
    try {
      return this.within((arena) => {
        const handle = arena.room(4);
        arena.check(this.functions.kb_index_open(memory, bytes.length, model.handle, handle, arena.message));
        return new StoredIndex(this, this.word(handle), memory);
      });
    } catch (error) {
      this.functions.free(memory);
      throw error;
    }
  }
}

/** Texts with vectors; `Core.index` opens it. */
export class StoredIndex {
  constructor(core, handle, memory) {
    Object.assign(this, { core, handle, memory });
  }

  get size() {
    return this.core.functions.kb_index_count(this.handle);
  }

  /** The texts of the largest cosines with a vector, largest first: {number, score, id, text}. */
  nearest(vector, top = 5) {
    if (!Number.isInteger(top) || top < 1) throw new CoreError(`top is ${top}, expected a whole number of at least 1`);
    const { core } = this;
    return core.within((arena) => {
      const [most, values] = [Math.min(top, this.size), new Uint8Array(Float32Array.from(vector).buffer)];
      const [at, count] = [arena.room(32 * most), arena.room(4)];
      arena.check(core.functions.kb_index_nearest(this.handle, arena.bytes(values), vector.length, most, at, count, arena.message));
      const text = (place) => core.string(core.word(place), core.word(place + 4));
      return Array.from({ length: core.word(count) }, (_, i) => ({
        number: core.word(at + 32 * i),
        score: new DataView(core.functions.memory.buffer).getFloat64(at + 32 * i + 8, true),
        id: text(at + 32 * i + 16),
        text: text(at + 32 * i + 24),
      }));
    });
  }

  close() {
    if (this.handle) this.core.functions.kb_index_close(this.handle);
    if (this.handle) this.core.functions.free(this.memory);
    this.handle = 0;
  }
}

export class Tokenizer {
  constructor(core, handle, own) {
    Object.assign(this, { core, handle, own, tokens: core.functions.kb_tokens_new() });
    if (this.tokens === 0) throw new CoreError("out of memory");
  }

  /** Ids of a text, without special tokens. */
  encode(text) {
    return this.#call("kb_encode", text, []).ids;
  }

  /** {ids, starts, ends} of a text, without special tokens. */
  tokenize(text) {
    const { ids, starts, ends } = this.#call("kb_tokenize", text, []);
    return { ids, starts, ends };
  }

  /** {ids, segments, truncated} of a text or a pair, with special tokens; length: the most tokens, 0 for any. */
  pack(first, second = null, length = 0) {
    return this.core.within((arena) => {
      const { ids, segments, truncated } = this.#call("kb_pack", first, [second === null ? 0 : arena.texts([second]), length]);
      return { ids, segments, truncated };
    });
  }

  #call(name, text, rest) {
    const { core, tokens } = this;
    return core.within((arena) => {
      arena.check(core.functions[name](this.handle, arena.texts([text]), ...rest, tokens, arena.message));
      const count = core.word(tokens);
      const [ids, starts, ends, segments] = [1, 2, 3, 4].map((i) => core.word(tokens + 4 * i));
      const read = (at) => (at ? core.ints(at, count) : null);
      const truncated = core.word(tokens + 20) !== 0;
      if (name === "kb_encode") return { ids: read(ids) };
      if (name === "kb_tokenize") return { ids: read(ids), starts: read(starts), ends: read(ends) };
      return { ids: read(ids), segments: read(segments), truncated };
    });
  }

  close() {
    this.core.functions.kb_tokens_free(this.tokens);
    if (this.own) this.core.functions.kb_tokenizer_close(this.handle);
    this.tokens = this.handle = 0;
  }
}

export class Model {
  constructor(core, handle) {
    const { functions } = core;
    Object.assign(this, { core, handle });
    const name = functions.kb_model_kind(handle);
    const size = core.bytes(name, 64).indexOf(0);
    this.kind = core.string(name, size);
    this.longest = functions.kb_model_longest(handle);
    this.settings = core.within((arena) => {
      const text = arena.room(8); // a struct is given back behind a pointer
      functions.kb_model_settings(text, handle);
      return JSON.parse(core.string(core.word(text), core.word(text + 4)));
    });
    this.tokenizer = new Tokenizer(core, functions.kb_model_tokenizer(handle), false);
  }

  /** The rows of one input: [text], a pair, [question, context], [text, ...choices], or with `words` the words of a text.
   * prompt: of a file of vectors, the name of another prompt than its default. */
  rows(texts, words = false, prompt = null) {
    return this.core.within((arena) => {
      const { kb_rows_make, kb_rows_prompted } = this.core.functions;
      const handle = arena.room(4);
      const given = [arena.texts(texts), texts.length];
      if (prompt === null) arena.check(kb_rows_make(this.handle, ...given, +words, handle, arena.message));
      else arena.check(kb_rows_prompted(this.handle, arena.texts([prompt]), ...given, handle, arena.message));
      return new Rows(this, this.core.word(handle));
    });
  }

  /**
   * A text to generate over any interpreter. settings: those of kerasbert-mobile's `kb.predict`, over the file's; told: whether pieces
   * are wanted.
   */
  write(text, settings = {}, told = false) {
    const plain = (_, value) => (["function", "symbol"].includes(typeof value) || (typeof value === "number" && !Number.isFinite(value)) ? String(value) : value);
    return this.#writing("kb_writing_begin", [text, JSON.stringify(settings, plain)], [+told]);
  }

  /** A text to score over any interpreter. */
  score(text) {
    return this.#writing("kb_writing_score", [text], []);
  }

  #writing(name, texts, rest) {
    return this.core.within((arena) => {
      const [handle, array] = [arena.room(4), arena.texts(texts)];
      const given = texts.map((_, i) => array + 8 * i); // a struct is taken by a pointer
      arena.check(this.core.functions[name](this.handle, ...given, ...rest, handle, arena.message));
      return new Writing(this, this.core.word(handle));
    });
  }

  close() {
    this.tokenizer.close();
    this.core.functions.kb_model_close(this.handle);
    this.handle = 0;
  }
}

/** The kb_row that `call` puts somewhere. */
function rowOf(core, call) {
  return core.within((arena) => {
    const row = arena.room(20);
    call(row);
    const [count, ids, segments, position, truncated] = [0, 1, 2, 3, 4].map((i) => core.word(row + 4 * i));
    return { ids: core.ints(ids, count), segments: core.ints(segments, count), position: position | 0, truncated: truncated !== 0 };
  });
}

/** A text that is generated or scored: what is asked of the network, step by step. */
export class Writing {
  constructor(model, handle) {
    Object.assign(this, { model, core: model.core, handle });
  }

  /** What a signature of the role encode or prefill reads first; of prefill nothing is read of a row of one token. */
  get row() {
    return rowOf(this.core, (row) => this.core.functions.kb_writing_row(row, this.handle));
  }

  /**
   * The logits of the steps that were asked for (Float32Array, null where there were none) -> what is asked next, until `ended`: step i
   * goes on from state origins[i] of those that the last steps gave, with tokens[i] at the place `column`. `piece`: what is new of the text.
   */
  next(logits) {
    const { core, handle } = this;
    return core.within((arena) => {
      const [steps, numbers] = [arena.room(28), logits ? arena.bytes(new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength)) : 0];
      arena.check(core.functions.kb_writing_next(handle, numbers, logits?.length ?? 0, steps, arena.message));
      const [count, tokens, origins, column, ended, piece, size] = [0, 1, 2, 3, 4, 5, 6].map((i) => core.word(steps + 4 * i));
      const read = (at) => (count ? core.ints(at, count) : new Int32Array());
      return { tokens: read(tokens), origins: read(origins), column, ended: ended !== 0, piece: size ? core.string(piece, size) : "" };
    });
  }

  /** The answer, when it has ended, as the Python runtime's to_json gives it. */
  answer() {
    return this.core.within((arena) => {
      const text = arena.room(8);
      arena.check(this.core.functions.kb_writing_answer(this.handle, text, arena.message));
      return JSON.parse(this.core.string(this.core.word(text), this.core.word(text + 4)));
    });
  }

  close() {
    this.core.functions.kb_writing_close(this.handle);
    this.handle = 0;
  }
}

export class Rows {
  constructor(model, handle) {
    Object.assign(this, { model, core: model.core, handle });
    this.length = this.core.functions.kb_rows_count(handle);
  }

  /** {ids, segments, position, truncated} of one; position: of a mask, else -1. */
  get(number) {
    if (!(number >= 0 && number < this.length)) throw new RangeError(`row ${number} of ${this.length}`);
    return rowOf(this.core, (row) => this.core.functions.kb_rows_row(row, this.handle, number));
  }

  /** Outputs of each row (Float32Array: C numbers, or the row's length times C) -> what the Python answer's `to_json` gives. */
  answer(outputs) {
    if (outputs.length !== this.length) throw new CoreError(`${outputs.length} outputs of ${this.length} rows, expected one each`);
    return this.core.within((arena) => {
      const count = Math.max(1, outputs.length);
      const [pointers, sizes, text] = [arena.room(4 * count), arena.room(4 * count), arena.room(8)];
      outputs.forEach((output, i) => {
        const at = arena.bytes(new Uint8Array(output.buffer, output.byteOffset, output.byteLength));
        this.core.put(pointers + 4 * i, at);
        this.core.put(sizes + 4 * i, output.length);
      });
      const { kb_answer } = this.core.functions;
      arena.check(kb_answer(this.model.handle, this.handle, pointers, sizes, text, arena.message));
      return JSON.parse(this.core.string(this.core.word(text), this.core.word(text + 4)));
    });
  }

  close() {
    this.core.functions.kb_rows_free(this.handle);
    this.handle = 0;
  }
}
