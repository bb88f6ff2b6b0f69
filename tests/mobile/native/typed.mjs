// typed.cpp in JavaScript, where the npm package is installed: under Node typed.mjs CLASS FILE LIBRARY (which it has no use for);
// a page calls `follow`.
import * as kerasbert from "kerasbert";

const { cosine } = kerasbert;
const text = (word) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array((word.match(/[0-9a-f]{2}/g) ?? []).map((pair) => parseInt(pair, 16))));
const hex = (text) => Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");
const label = ({ name, score, id, chosen }) => [hex(name), score, id, chosen];

// spans whose offsets are those of their text
const inside = (source) => ({ text, label, score, start, end }) => {
  if (source.slice(start, end) !== text) throw new Error("offsets of another text");
  return [hex(text), hex(label), score, start, end];
};

const shown = {
  async Classifier(runner, [text]) {
    const found = await runner.answer(text);
    return [hex(found.label), found.score, found.labels.map(label), found.truncated];
  },
  async Tagger(runner, texts, words) {
    const found = await runner.answer(words ? texts : texts[0]);
    const show = inside(texts.join(" "));
    return [found.words.map(show), found.entities.map(show), false];
  },
  async QuestionAnswerer(runner, [question, context]) {
    const { alternatives, truncated, ...best } = await runner.answer(question, context);
    return [inside(context)(best), alternatives.map(inside(context)), truncated];
  },
  async Embedder(runner, texts) {
    const { values, truncated } = await (texts.length > 1 ? runner.prompted(...texts) : runner.answer(texts[0]));
    return [Array.from(values), cosine(values, values), truncated];
  },
  async Regressor(runner, [text]) {
    const { value, truncated } = await runner.answer(text);
    return [value, truncated];
  },
  async Chooser(runner, [text, ...choices]) {
    const found = await runner.answer(text, choices);
    return [found.index, found.score, found.choices.map(label), found.truncated];
  },
  async MaskFiller(runner, [text]) {
    const found = await runner.answer(text);
    return [hex(found.text), found.tokens.map((mask) => mask.map(label)), found.truncated];
  },
};

// an index beside the file
async function searched(file, lines) {
  const embedder = await kerasbert.Embedder.open(file);
  const index = await kerasbert.Index.open(`${file}.kbindex`, embedder);
  const found = [];
  for (const line of lines) {
    const { values } = await embedder.answer(text(line.split(" ")[1]));
    const hits = index.nearest(values, 3).map((hit) => [hit.number, hit.score, hex(hit.id), hex(hit.text)]);
    found.push(JSON.stringify(hits));
  }
  if (index.size !== 200) found.push(`${index.size} texts`);
  index.close();
  embedder.close();
  return found;
}

// a Writer; lines: see typed.cpp
const settingsOf = (words) => {
  const settings = {};
  for (let i = 0; i < words.length; i += 2) {
    const [name, value] = [words[i], words[i + 1]];
    if (["prefix", "separator"].includes(name)) settings[name] = text(value);
    else if (name === "bad_words_ids") settings[name] = value.split(";").filter(Boolean).map((word) => word.split(",").map(Number));
    else if (name.endsWith("_tokens") && name.includes("suppress")) settings[name] = value.split(",").map(Number);
    else if (name === "early_stopping") settings[name] = { true: true, false: false }[value] ?? value;
    else settings[name] = { nan: NaN, inf: Infinity }[value] ?? Number(value);
  }
  return settings;
};

async function written(writer, listens, source, settings) {
  const [pieces, control] = [[], new AbortController()];
  const signal = control.signal;
  if (listens === "other") setTimeout(() => control.abort(), 1); // as a button does
  try {
    let answer;
    if (listens === "score") {
      const found = await writer.score(source, { signal });
      return JSON.stringify([found.tokens.map(hex), found.logProbabilities, found.score, found.perplexity, found.truncated]);
    }
    if (listens === "-") {
      answer = await writer.generate(source, settings, { signal });
    } else {
      const stream = writer.stream(source, settings, { signal });
      for await (const piece of stream) {
        pieces.push(piece);
        if (listens === "cancel" && pieces.length === 2) control.abort();
        if (listens === "throw" && pieces.length === 2) throw new Error("of the listener");
        if (listens === "close" && pieces.length === 2) writer.close();
        if (listens === String(pieces.length)) break;
      }
      ({ answer } = stream);
      if (answer === null) return `error 5 ${pieces.length} the answer was cancelled`;
    }
    const sequences = answer.sequences.map((each) => [hex(each.text), each.score]);
    return JSON.stringify([hex(answer.text), answer.score, sequences, pieces.map(hex), answer.truncated]);
  } catch (error) {
    if (error.name === "AbortError") return `error 5 ${pieces.length} the answer was cancelled`;
    if (!(error instanceof kerasbert.CoreError)) return `thrown ${pieces.length} ${error.message}`;
    return `error ${error.unsupported ? 3 : 4} ${pieces.length} ${error.message}`;
  }
}

async function write(file, lines) {
  const writer = await kerasbert.Writer.open(file);
  const found = [];
  for (const line of lines) {
    const [listens, source, ...words] = line.split(" ");
    found.push(await written(writer, listens, text(source), settingsOf(words)));
  }
  writer.close();
  return found;
}

export async function follow(name, file, lines) {
  try {
    if (name === "Index") return await searched(file, lines);
    if (name === "Writer") return await write(file, lines);
    const runner = await kerasbert[name].open(file);
    const answers = [];
    for (const line of lines) {
      const [words, ...texts] = line.split(" ");
      answers.push(JSON.stringify(await shown[name](runner, texts.map(text), words === "1")));
    }
    runner.close();
    return answers;
  } catch (error) {
    return [`error ${error.message}`];
  }
}

if (globalThis.process) {
  const { readFileSync } = await import("node:fs");
  const [name, file] = process.argv.slice(2);
  console.log((await follow(name, file, readFileSync(0, "latin1").split("\n").filter(Boolean))).join("\n"));
}
