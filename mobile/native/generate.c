/* A text that is generated over LiteRT's library: what reads its source runs once, then a step for each token. As runtime/writing. */
#if !defined(__wasm__)
#include <stdlib.h>

#include "generate.h"
#include "litert.h"
#include "runner.h"

#define MOST_SIGNATURES 4096
struct kb_writer {
  kb_signature *reading, *steps; /* by length */
  size_t reading_count, step_count;
  const char *logits; /* the step's output of that name */
  kb_programs programs;
  kb_writing *now; /* the last text */
};

/* A text that is being generated. */
typedef struct writing {
  kb_runner *runner;
  kb_listener told;
  void *context;
  size_t begun; /* places of the program of the steps */
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
  if (w != NULL) w->reading = calloc(count + 1, sizeof *w->reading), w->steps = calloc(count + 1, sizeof *w->steps);
  if (w == NULL || w->reading == NULL || w->steps == NULL) return kb_no_memory(message);
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
  kb_writing_close(w->now);
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

/* Runs the steps that are asked for -> w->logits [count, width]. */
static kb_status run(writing *w, const kb_steps *asked, size_t *size, kb_message *message) {
  const kb_programs *programs = &w->runner->writer->programs;
  size_t i, width = 0, column = (size_t)asked->column;
  kb_status status = KB_OK;
  if (column >= w->begun) status = grow(w, column + 1, message);
  for (i = 0; i < asked->count && status == KB_OK; i++) {
    const float *found = NULL;
    if (kb_load(&w->runner->cancelled)) return kb_runner_cancelled(message);
    status = programs->step(programs->context, asked->tokens[i], asked->column, (size_t)asked->origins[i], i, &found, &width, message);
    if (status != KB_OK) break;
    if (!kb_reserve((void **)&w->logits, &w->logits_room, asked->count * width, sizeof *w->logits)) return kb_no_memory(message);
    memcpy(w->logits + i * width, found, width * sizeof *found);
  }
  if (status != KB_OK) return kb_load(&w->runner->cancelled) ? kb_runner_cancelled(message) : status;
  programs->turn(programs->context);
  *size = asked->count * width;
  return KB_OK;
}

/* ---- a text ---- */

/* Reads a row; of a prompt of one token nothing is read, for its last token is a step's. */
static kb_status read_row(writing *w, const kb_row *row, kb_message *message) {
  kb_runner *r = w->runner;
  const struct kb_writer *writer = r->writer;
  const kb_signature *s = writer->reading;
  kb_input inputs[KB_MOST_INPUTS];
  kb_status status;
  int alone = r->model->generation->alone || r->model->generation->masked;
  if (alone && row->length < 2) return KB_OK;
  while (s < writer->reading + writer->reading_count && s->length < row->length) s++;
  if (s == writer->reading + writer->reading_count) return kb_fail(message, KB_DAMAGED, "no signature of the file reads %lu tokens: write the file again", (unsigned long)row->length);
  if (!kb_runner_fill(r, row, s->length, inputs)) return kb_no_memory(message);
  if (kb_load(&r->cancelled)) return kb_runner_cancelled(message);
  w->from_read = alone;
  status = writer->programs.read(writer->programs.context, s->name, inputs, r->input_count, message);
  return status != KB_OK && kb_load(&r->cancelled) ? kb_runner_cancelled(message) : status;
}

static kb_status follow(writing *w, kb_text *json, kb_message *message) {
  kb_writing *now = w->runner->writer->now;
  kb_row row = kb_writing_row(now);
  kb_steps asked;
  size_t size = 0;
  kb_status status = read_row(w, &row, message);
  memset(&asked, 0, sizeof asked);
  while (status == KB_OK && !asked.ended) {
    status = kb_writing_next(now, w->logits, size, &asked, message);
    if (status == KB_OK && asked.piece.size > 0 && w->told(w->context, asked.piece) != 0) status = kb_runner_cancelled(message);
    if (status == KB_OK && asked.count > 0) status = run(w, &asked, &size, message);
  }
  return status == KB_OK ? kb_writing_answer(now, json, message) : status;
}

/* What options say of a text; NULL: it is scored. */
static kb_status answer(writing *w, kb_text text, const kb_text *options, kb_text *json, kb_message *message) {
  kb_runner *r = w->runner;
  struct kb_writer *writer = r->writer;
  kb_status status;
  json->data = NULL, json->size = 0;
  if (writer == NULL) return kb_fail(message, KB_ARGUMENT, "the file answers with a %s: it generates no texts", kb_model_kind(r->model));
  if (writer->programs.step == NULL) return kb_fail(message, KB_UNSUPPORTED, "texts over another network than LiteRT's library: kb_writing_begin asks for the steps of one");
  if (kb_exchange(&r->busy, 1)) return kb_fail(message, KB_ARGUMENT, "the runner answers another thread: open one for each, or take turns");
  kb_exchange(&r->cancelled, 0);
  kb_writing_close(writer->now);
  if (options != NULL) status = kb_writing_begin(r->model, text, *options, w->told != NULL, &writer->now, message);
  else status = kb_writing_score(r->model, text, &writer->now, message);
  if (status == KB_OK) status = follow(w, json, message);
  if (status != KB_OK) kb_writing_close(writer->now), writer->now = NULL;
  free(w->logits);
  kb_exchange(&r->busy, 0);
  return status;
}

KB_API kb_status kb_runner_generate(kb_runner *r, kb_text text, kb_text options, kb_listener told, void *context, kb_text *json, kb_message *message) {
  writing w;
  memset(&w, 0, sizeof w);
  w.runner = r, w.told = told, w.context = context;
  return answer(&w, text, &options, json, message);
}

KB_API kb_status kb_runner_score(kb_runner *r, kb_text text, kb_text *json, kb_message *message) {
  writing w;
  memset(&w, 0, sizeof w);
  w.runner = r;
  return answer(&w, text, NULL, json, message);
}

const kb_result *kb_writer_result(const struct kb_writer *writer) { return kb_writing_result(writer->now); }
#else
typedef int kb_no_texts_of_webassembly; /* a file is not empty in C99 */
#endif
