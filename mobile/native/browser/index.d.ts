/** Text to typed answers in a browser and in Node. Offsets count as strings do: `text.slice(start, end)` is the answer. */

/** A file: its bytes, or its address; in Node a path too. */
export type File = string | URL | ArrayBuffer | Uint8Array;

export interface Options {
  /** What runs the network; "wasm", the processor, by default. The others are LiteRT.js's. */
  accelerator?: "wasm" | "webgpu" | "webnn";
  /** Of LiteRT.js's `loadAndCompile`. */
  gpuOptions?: object;
  webNNOptions?: object;
  /** The most rows of the model's length that an input may take: 1 to 1,024, which is the default. */
  rows?: number;
}

/** A label, a choice, or a token for a mask. */
export interface Label {
  name: string;
  score: number;
  /** Of a token its id; else its place. */
  id: number;
  /** Whether it is the answer: the best, or of several labels one above its threshold. */
  chosen: boolean;
}

/** A part of a text: a word, an entity, an answer. */
export interface Span {
  text: string;
  /** Of tags; else empty. */
  label: string;
  score: number;
  start: number;
  end: number;
}

/** Whether a text was longer than the model reads. */
export interface Truncated {
  truncated: boolean;
}

/** What a call that failed says. `unsupported`: only the Python runtime knows this file, tokenizer or answer. */
export class CoreError extends Error {
  unsupported: boolean;
}

/**
 * Loads the core and LiteRT.js, once; `open` does it too.
 *
 * @param options.litert the address of LiteRT.js's folder `wasm`: a bundler needs it, since it moves this file
 */
export function load(options?: { litert?: string | URL }): Promise<unknown>;

/** Text, or a pair of texts, to labels. */
export class Classifier {
  static open(file: File, options?: Options): Promise<Classifier>;
  answer(text: string, second?: string): Promise<{ label: string; score: number; labels: Label[] } & Truncated>;
  close(): void;
}

/** Text, or its words, to a label of every word, and entities. Offsets of words are those of the words joined by blanks. */
export class Tagger {
  static open(file: File, options?: Options): Promise<Tagger>;
  answer(text: string | string[]): Promise<{ words: Span[]; entities: Span[] }>;
  close(): void;
}

/** A question and a text of any length to the part of the text that answers it; empty where none does. */
export class QuestionAnswerer {
  static open(file: File, options?: Options): Promise<QuestionAnswerer>;
  answer(question: string, context: string): Promise<Span & { alternatives: Span[] } & Truncated>;
  close(): void;
}

/** Text, or a pair of texts, to a vector. */
export class Embedder {
  static open(file: File, options?: Options): Promise<Embedder>;
  answer(text: string, second?: string): Promise<{ values: Float32Array } & Truncated>;
  /** After another prompt of the file than its default, such as "query"; "" for none. */
  prompted(prompt: string, text: string): Promise<{ values: Float32Array } & Truncated>;
  close(): void;
}

/** Cosine of the angle between two vectors of one model; 0 where one is 0. */
export function cosine(one: ArrayLike<number>, other: ArrayLike<number>): number;

/** A text that was found: its number from 0, the cosine of the int8 vectors, its name and itself. */
export interface Hit {
  number: number;
  score: number;
  id: string;
  text: string;
}

/** Texts that `kerasbert-mobile index` keeps with vectors of the file of an Embedder. */
export class Index {
  static open(file: File, embedder: Embedder): Promise<Index>;
  /** How many texts. */
  readonly size: number;
  /** The texts of the largest cosines with `values` of an answer of the embedder, largest first; 5 by default. */
  nearest(values: ArrayLike<number>, top?: number): Hit[];
  close(): void;
}

/** Text, or a pair of texts, to a number. */
export class Regressor {
  static open(file: File, options?: Options): Promise<Regressor>;
  answer(text: string, second?: string): Promise<{ value: number } & Truncated>;
  close(): void;
}

/** A text and at least two choices to the one that fits best. */
export class Chooser {
  static open(file: File, options?: Options): Promise<Chooser>;
  answer(text: string, choices: string[]): Promise<{ index: number; score: number; choices: Label[] } & Truncated>;
  close(): void;
}

/** A text with [MASK] in it to the tokens that may stand there, best first; `text` has the best ones in it. */
export class MaskFiller {
  static open(file: File, options?: Options): Promise<MaskFiller>;
  answer(text: string): Promise<{ text: string; tokens: Label[][] } & Truncated>;
  close(): void;
}

/** How a text is generated: the options of Python's `kb.predict`, over those of the file. What is not given is the file's. */
export interface Settings {
  /** Tokens that are generated at most; 0 for the file's target_length, of which there are never more. */
  max_tokens?: number;
  /** Tokens before which no text ends. */
  min_new_tokens?: number;
  /** Beams of a beam search, 1 to 256; not together with drawn tokens. */
  beams?: number;
  /** Texts of an answer: the best of the beams, or as many that are drawn. */
  num_return_sequences?: number;
  /** Draws tokens, of logits that are divided by it. */
  temperature?: number | null;
  /** Draws one of so many tokens. */
  top_k?: number | null;
  /** Draws one of the fewest tokens that have this probability together. */
  top_p?: number | null;
  /** Of drawn tokens: the same seed gives the same text, in Python too. */
  seed?: number;
  length_penalty?: number;
  repetition_penalty?: number;
  no_repeat_ngram_size?: number;
  /** When beams end. */
  early_stopping?: boolean | "never" | null;
  forced_bos_token_id?: number | null;
  forced_eos_token_id?: number | null;
  suppress_tokens?: number[];
  begin_suppress_tokens?: number[];
  bad_words_ids?: number[][];
  /** In front of the text. */
  prefix?: string;
  /** Between the text and what is generated; "" where it is gone on from. */
  separator?: string;
}

export interface Cancel {
  /** Ends the text by its reason. */
  signal?: AbortSignal;
}

/** A text that was generated; `sequences`: all that were asked for, best first. `score`: the log-probability, by the length penalty. */
export interface Generated extends Truncated {
  text: string;
  score: number;
  sequences: { text: string; score: number }[];
}

/** Pieces of a text as its tokens come, whole characters; joined they are the text of `answer`, which is there when they have ended. */
export interface Stream extends AsyncIterable<string> {
  readonly answer: Generated | null;
}

/** A text to the text that is generated from it. `close` ends a text that is under way. */
export class Writer {
  static open(file: File, options?: Options): Promise<Writer>;
  generate(text: string, settings?: Settings, options?: Cancel): Promise<Generated>;
  /** Not with beams, or several texts: none is known before the end. Whoever leaves the loop ends the text. */
  stream(text: string, settings?: Settings, options?: Cancel): Stream;
  /** How probable a text is, by a file of a decoder alone (GPT-2): of its tokens but the first. `score`: the sum of logProbabilities. */
  score(text: string, options?: Cancel): Promise<{ tokens: string[]; logProbabilities: number[]; score: number; perplexity: number } & Truncated>;
  close(): void;
}
