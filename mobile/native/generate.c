/* A text that is generated over LiteRT's library: what reads its source runs once, then a step for each token. As runtime/writing. */
#if !defined(__wasm__)
#include <stdlib.h>

#include "generate.h"
#include "litert.h"
#include "runner.h"

#define MOST_SIGNATURES 4096
#define UNFINISHED "\xEF\xBF\xBD" /* U+FFFD: what the beginning of a character is decoded to */

struct kb_writer {
  kb_signature *reading, *steps; /* by length */
  size_t reading_count, step_count;
  const char *logits; /* the step's output of that name */
  kb_programs programs;
  kb_tokens *tokens;
  kb_bytes json;
};

/* A text that is being generated. */
typedef struct writing {
  kb_runner *runner;
  const kb_decoding *how;
  kb_listener told;
  void *context;
  size_t begun, said; /* places of the program of the steps; bytes that were told */
  int from_read;
  float *logits;
  size_t logits_room;
} writing;

/* ---- opening ---- */

static kb_status damaged(kb_message *message, const char *what) {
  return kb_fail(message, KB_DAMAGED, "the bundle has %s: write the file again", what);
}

static kb_status ordered(kb_signature *list, size_t count, kb_message *message) {
  size_t i;
  qsort(list, count, sizeof *list, kb_by_length);
  for (i = 1; i < count; i++)
    if (list[i].length == list[i - 1].length) return damaged(message, "two signatures of one length");
  return KB_OK;
}

kb_status kb_writer_open(kb_runner *r, const kb_json *json, kb_message *message) {
  uint32_t list = kb_json_get(json, 0, "signatures"), at = list + 1;
  size_t count = json->nodes[list].count, i; /* a list that prompt.c has looked at */
  struct kb_writer *w = r->writer = calloc(1, sizeof *w);
  kb_status status;
  if (count > MOST_SIGNATURES) return damaged(message, "too many signatures");
  if (w != NULL) w->reading = calloc(count + 1, sizeof *w->reading), w->steps = calloc(count + 1, sizeof *w->steps), w->tokens = kb_tokens_new();
  if (w == NULL || w->reading == NULL || w->steps == NULL || w->tokens == NULL) return kb_no_memory(message);
  for (i = 0; i < count; i++, at = json->nodes[at].next) {
    uint32_t role = kb_json_get(json, at, "role"), lengths = kb_json_get(json, at, "lengths"), outputs = kb_json_get(json, at, "outputs");
    int step = kb_is(json->nodes[role].text, "decode_step");
    const char *axis = step ? "T" : kb_is(json->nodes[role].text, "encode") ? "S" : "P", *logits;
    kb_signature *to = step ? w->steps + w->step_count++ : w->reading + w->reading_count++;
    long length = 0;
    to->name = kb_runner_string(r, json, kb_json_get(json, at, "name"));
    kb_json_integer(json, kb_json_get(json, lengths, axis), &length, 1, KB_MOST_LENGTH);
    to->length = (size_t)length;
    if (to->name == NULL) return damaged(message, "a signature without a name");
    if (!step) continue;
    logits = outputs ? kb_runner_string(r, json, kb_json_get(json, outputs, "logits")) : NULL;
    if (logits == NULL || (w->logits != NULL && strcmp(logits, w->logits) != 0)) return damaged(message, "steps with different outputs, or without logits");
    w->logits = logits;
  }
  status = ordered(w->reading, w->reading_count, message);
  return status == KB_OK ? ordered(w->steps, w->step_count, message) : status;
}

void kb_writer_close(struct kb_writer *w) {
  if (w == NULL) return;
  if (w->programs.close != NULL) w->programs.close(w->programs.context);
  kb_tokens_free(w->tokens);
  free(w->json.data);
  free(w->reading);
  free(w->steps);
  free(w);
}

kb_status kb_writer_over(struct kb_writer *writer, kb_network *litert, kb_message *message) {
  return kb_litert_programs(litert, writer->logits, &writer->programs, message);
}

/* ---- steps ---- */

/* Goes on with places for `least` tokens. */
static kb_status grow(writing *w, size_t least, kb_message *message) {
  const struct kb_writer *writer = w->runner->writer;
  const kb_signature *s = writer->steps;
  kb_status status;
  while (s < writer->steps + writer->step_count && s->length < least) s++;
  if (s == writer->steps + writer->step_count) return kb_fail(message, KB_DAMAGED, "the file's steps have fewer than %lu places: write the file again", (unsigned long)least);
  status = writer->programs.grow(writer->programs.context, s->name, w->begun == 0, w->from_read, message);
  if (status == KB_OK) w->begun = s->length;
  return status;
}

static kb_status step(void *context, const int32_t *tokens, const size_t *origin, size_t count, size_t column, const float **logits, size_t *width,
                      kb_message *message) {
  writing *w = context;
  const kb_programs *programs = &w->runner->writer->programs;
  size_t i;
  kb_status status = KB_OK;
  if (column >= w->begun) status = grow(w, column + 1, message);
  for (i = 0; i < count && status == KB_OK; i++) {
    const float *found = NULL;
    if (kb_load(&w->runner->cancelled)) return kb_runner_cancelled(message);
    status = programs->step(programs->context, tokens[i], (int32_t)column, origin[i], i, &found, width, message);
    if (status != KB_OK) break;
    if (!kb_reserve((void **)&w->logits, &w->logits_room, count * *width, sizeof *w->logits)) return kb_no_memory(message);
    memcpy(w->logits + i * *width, found, *width * sizeof *found);
  }
  if (status != KB_OK) return kb_load(&w->runner->cancelled) ? kb_runner_cancelled(message) : status;
  programs->turn(programs->context);
  *logits = w->logits;
  return KB_OK;
}

/* The text of ids, up to the end. */
static kb_status text_of(writing *w, const kb_written *written, kb_text *text, kb_message *message) {
  const kb_tokenizer *t = w->runner->model->tokenizer;
  size_t count = 0;
  while (count < written->count && written->ids[count] != t->parts[KB_SEP]) count++;
  return kb_detokenize(t, written->ids, count, w->runner->writer->tokens, text, message);
}

/* Tells what is new of a text; `ended`: no token is to come. */
static kb_status tell(writing *w, const kb_written *written, int ended, kb_message *message) {
  kb_text text, piece;
  kb_status status = text_of(w, written, &text, message);
  if (status != KB_OK) return status;
  if (!ended && text.size >= 3 && memcmp(text.data + text.size - 3, UNFINISHED, 3) == 0) text.size -= 3; /* its other bytes are to come */
  if (text.size <= w->said) return KB_OK;
  piece.data = text.data + w->said, piece.size = text.size - w->said;
  w->said = text.size;
  return w->told(w->context, piece) == 0 ? KB_OK : kb_runner_cancelled(message);
}

static kb_status told(void *context, const kb_written *written, kb_message *message) { return tell(context, written, 0, message); }

/* ---- a text ---- */

static kb_status put_text(writing *w, const kb_written *written, kb_bytes *json, kb_text *text, kb_message *message) {
  kb_status status = text_of(w, written, text, message);
  if (status != KB_OK) return status;
  kb_put(json, "{\"text\": ");
  kb_put_string(json, *text);
  kb_put(json, ", \"score\": ");
  kb_put_number(json, (double)written->score);
  return KB_OK;
}

static kb_status put_answer(writing *w, const kb_written *texts, size_t count, kb_text *answer, kb_message *message) {
  kb_bytes *json = &w->runner->writer->json;
  kb_rows *rows = w->runner->rows;
  kb_text text;
  size_t i;
  kb_status status;
  json->count = 0, json->failed = 0;
  kb_told_clear(&rows->told);
  status = put_text(w, texts, json, &text, message);
  for (i = 0; i < count && status == KB_OK; i++) {
    if (count > 1) kb_put(json, i ? ", " : ", \"sequences\": [");
    if (count > 1) status = put_text(w, texts + i, json, &text, message);
    if (count > 1) kb_put(json, i + 1 < count ? "}" : "}]");
    if (status == KB_OK) kb_tell_label(rows, kb_tell_text(rows, text), (double)texts[i].score, (int32_t)i, i == 0);
  }
  if (status != KB_OK) return status;
  kb_put_truncated(json, rows);
  if (json->failed == KB_NOT_FINITE) return kb_fail(message, KB_DAMAGED, "the network gives logits that are not finite: write the file again");
  if (json->failed || !kb_told_end(rows)) return kb_no_memory(message);
  rows->told.view.text = rows->told.view.labels->name;
  answer->data = (const char *)json->data, answer->size = json->count;
  return KB_OK;
}

/* Reads a row; of a prompt of one token nothing is read, for its last token is a step's. */
static kb_status read_row(writing *w, const kb_row *row, kb_message *message) {
  kb_runner *r = w->runner;
  const struct kb_writer *writer = r->writer;
  const kb_signature *s = writer->reading;
  kb_input inputs[KB_MOST_INPUTS];
  kb_status status;
  int alone = w->how->alone || w->how->masked;
  if (alone && row->length < 2) return KB_OK;
  while (s < writer->reading + writer->reading_count && s->length < row->length) s++;
  if (s == writer->reading + writer->reading_count) return kb_fail(message, KB_DAMAGED, "no signature of the file reads %lu tokens: write the file again", (unsigned long)row->length);
  if (!kb_runner_fill(r, row, s->length, inputs)) return kb_no_memory(message);
  if (kb_load(&r->cancelled)) return kb_runner_cancelled(message);
  w->from_read = alone;
  status = writer->programs.read(writer->programs.context, s->name, inputs, r->input_count, message);
  return status != KB_OK && kb_load(&r->cancelled) ? kb_runner_cancelled(message) : status;
}

static kb_status write_text(writing *w, kb_text *json, kb_message *message) {
  const kb_tokenizer *t = w->runner->model->tokenizer;
  int alone = w->how->alone || w->how->masked;
  size_t count = (size_t)w->how->sequences, all = w->how->beams > 1 ? (size_t)w->how->beams : count;
  kb_row row = kb_rows_row(w->runner->rows, 0);
  kb_written *texts = NULL;
  kb_search search;
  kb_status status = read_row(w, &row, message);
  memset(&search, 0, sizeof search);
  search.how = w->how, search.end = t->parts[KB_SEP], search.context = w, search.step = step, search.told = w->told ? told : NULL;
  search.prompt = alone ? row.ids : t->parts + w->how->start, search.prompt_count = alone ? row.length : 1;
  if (status == KB_OK && search.prompt[0] < 0) status = kb_fail(message, KB_DAMAGED, "the tokenizer has not the token that texts start with");
  if (status == KB_OK) status = grow(w, search.prompt_count, message);
  if (status == KB_OK) status = kb_search_run(&search, &texts, message);
  if (status == KB_OK && w->told) status = tell(w, texts, 1, message);
  if (status == KB_OK) status = put_answer(w, texts, count, json, message);
  kb_written_free(texts, all);
  free(w->logits);
  return status;
}

static kb_status generate(writing *w, kb_text text, kb_text options, kb_text *json, kb_message *message) {
  kb_runner *r = w->runner;
  kb_decoding how;
  kb_json said;
  kb_status status = kb_decoding_copy(&how, r->model->generation);
  kb_rows_free(r->rows);
  r->rows = NULL;
  if (status != KB_OK) status = kb_no_memory(message);
  memset(&said, 0, sizeof said);
  if (status == KB_OK && options.size > 0) status = kb_json_open(&said, options, "options", message);
  if (status == KB_OK && options.size > 0) status = kb_decoding_read(&how, &said, 0, 1, message);
  if (status == KB_OK && w->told != NULL && (how.beams > 1 || how.sequences > 1))
    status = kb_fail(message, KB_ARGUMENT, "%s is %ld, expected 1: a text is known at its end alone then", how.beams > 1 ? "beams" : "num_return_sequences", how.beams > 1 ? how.beams : how.sequences);
  w->how = &how;
  if (status == KB_OK) status = kb_rows_new(r->model, &r->rows, message);
  if (status == KB_OK) status = kb_prompt_row(r->rows, &how, text, message);
  if (status == KB_OK) status = write_text(w, json, message);
  kb_decoding_close(&how);
  kb_json_close(&said);
  return status;
}

KB_API kb_status kb_runner_generate(kb_runner *r, kb_text text, kb_text options, kb_listener told, void *context, kb_text *json, kb_message *message) {
  writing w;
  kb_status status;
  json->data = NULL, json->size = 0;
  if (r->writer == NULL) return kb_fail(message, KB_ARGUMENT, "the file answers with a %s: it generates no texts", kb_model_kind(r->model));
  if (r->writer->programs.step == NULL) return kb_fail(message, KB_UNSUPPORTED, "texts over another network than LiteRT's library");
  if (kb_exchange(&r->busy, 1)) return kb_fail(message, KB_ARGUMENT, "the runner answers another thread: open one for each, or take turns");
  kb_exchange(&r->cancelled, 0);
  memset(&w, 0, sizeof w);
  w.runner = r, w.told = told, w.context = context;
  status = generate(&w, text, options, json, message);
  kb_exchange(&r->busy, 0);
  return status;
}
#else
typedef int kb_no_texts_of_webassembly; /* a file is not empty in C99 */
#endif
