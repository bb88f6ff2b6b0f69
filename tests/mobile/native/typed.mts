// What index.d.ts promises, as an app in TypeScript uses it (test_typed.py compiles it and does not run it).
import { Chooser, Classifier, CoreError, cosine, Embedder, Index, load, MaskFiller, QuestionAnswerer, Regressor, Tagger, Writer } from "kerasbert";
import type { Hit, Label, Options, Settings, Span, Stream } from "kerasbert";

const options: Options = { accelerator: "webgpu", rows: 64 };
await load({ litert: "/wasm/" });
const classifier = await Classifier.open(new Uint8Array(1), options);
const { label, score, labels, truncated }: { label: string; score: number; labels: Label[]; truncated: boolean } = await classifier.answer("a", "b");
const { words, entities }: { words: Span[]; entities: Span[] } = await (await Tagger.open("x.tflite")).answer(["a", "b"]);
const best: Span = await (await QuestionAnswerer.open(new URL("https://x"))).answer("who", "text");
const vector: Float32Array = (await (await Embedder.open(new ArrayBuffer(1))).answer("a")).values;
const hits: Hit[] = (await Index.open("x.kbindex", await Embedder.open("x"))).nearest(vector, 3);
const value: number = (await (await Regressor.open("x")).answer("a")).value + cosine(vector, vector);
const index: number = (await (await Chooser.open("x")).answer("a", ["b", "c"])).index;
const token: string = (await (await MaskFiller.open("x")).answer("[MASK]")).tokens[0][0].name;
const writer = await Writer.open("x");
const settings: Settings = { beams: 4, early_stopping: "never", bad_words_ids: [[1], [2, 3]], top_k: null };
const control = new AbortController();
const text: string = (await writer.generate("a", settings, { signal: control.signal })).sequences[0].text;
const stream: Stream = writer.stream("a", { temperature: 0.8, seed: 7 });
for await (const piece of stream) piece.length;
const written: boolean | undefined = stream.answer?.truncated;
const perplexity: number = (await writer.score("a b")).perplexity;
const unsupported = (error: unknown) => error instanceof CoreError && error.unsupported;
classifier.close();
// @ts-expect-error no such setting
await writer.generate("a", { bems: 2 });
// @ts-expect-error no such option
await Classifier.open("x", { threads: 2 });
export { hits, label, score, labels, truncated, words, entities, best, value, index, token, text, written, perplexity, unsupported };
