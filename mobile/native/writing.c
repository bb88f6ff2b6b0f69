/* A text that is generated or scored over any network: what is asked of it, step by step, and the answer. As runtime/writing. */
#include <math.h>
#include <stdlib.h>

#include "generate.h"

#define UNFINISHED "\xEF\xBF\xBD" /* U+FFFD: what the beginning of a character is decoded to */

struct kb_writing {
  const kb_model *model;
  kb_decoding how;
  int told, begun, whole, failed; /* whole: no step is asked for any more */
  kb_rows *rows;                  /* one, that is read; and the answer */
  kb_search *search;              /* NULL: a text is scored */
  kb_ints ids;                    /* of a text that is scored */
  double *scores;                 /* of its tokens but the first */
  size_t at, said;                /* scored tokens; bytes that were told */
  kb_tokens *tokens;
  kb_bytes json;
};

/* ---- beginning ---- */

static kb_status new_writing(const kb_model *model, kb_writing **writing, kb_message *message) {
  kb_writing *w;
  kb_status status;
  *writing = NULL;
  if (model->generation == NULL) return kb_fail(message, KB_ARGUMENT, "the file answers with a %s: it generates no texts", kb_model_kind(model));
  w = *writing = calloc(1, sizeof *w);
  if (w == NULL) return kb_no_memory(message);
  w->model = model;
  status = kb_decoding_copy(&w->how, model->generation);
  if (status == KB_OK && (w->tokens = kb_tokens_new()) == NULL) status = KB_NO_MEMORY;
  return status == KB_OK ? kb_rows_new(model, &w->rows, message) : kb_no_memory(message);
}

/* The search behind the row. */
static kb_status begin_search(kb_writing *w, kb_message *message) {
  const kb_tokenizer *t = w->model->tokenizer;
  kb_row row = kb_rows_row(w->rows, 0);
  int alone = w->how.alone || w->how.masked;
  const int32_t *prompt = alone ? row.ids : t->parts + w->how.start;
  if (prompt[0] < 0) return kb_fail(message, KB_DAMAGED, "the tokenizer has not the token that texts start with");
  return kb_search_open(&w->how, t->parts[KB_SEP], prompt, alone ? row.length : 1, &w->search, message);
}

static kb_status begin(kb_writing *w, kb_text text, kb_text options, kb_message *message) {
  kb_decoding *how = &w->how;
  kb_json said; /* prefix and separator stand in it */
  kb_status status = KB_OK;
  memset(&said, 0, sizeof said);
  if (options.size > 0) status = kb_json_open(&said, options, "options", message);
  if (status == KB_OK && options.size > 0) status = kb_decoding_read(how, &said, 0, 1, message);
  if (status == KB_OK && w->told && (how->beams > 1 || how->sequences > 1))
    status = kb_fail(message, KB_ARGUMENT, "%s is %ld, expected 1: a text is known at its end alone then", how->beams > 1 ? "beams" : "num_return_sequences", how->beams > 1 ? how->beams : how->sequences);
  if (status == KB_OK) status = kb_prompt_row(w->rows, how, text, message);
  kb_json_close(&said);
  return status == KB_OK ? begin_search(w, message) : status;
}

static kb_status made(kb_status status, kb_writing **writing) {
  if (status == KB_OK) return KB_OK;
  kb_writing_close(*writing);
  *writing = NULL;
  return status;
}

KB_API kb_status kb_writing_begin(const kb_model *model, kb_text text, kb_text options, int32_t told, kb_writing **writing, kb_message *message) {
  kb_status status = new_writing(model, writing, message);
  if (status == KB_OK) (*writing)->told = told != 0, status = begin(*writing, text, options, message);
  return made(status, writing);
}

static kb_status begin_score(kb_writing *w, kb_text text, kb_message *message) {
  size_t i, most = w->model->longest;
  kb_status status;
  if (!w->how.alone || w->how.masked) return kb_fail(message, KB_ARGUMENT, "the file scores no texts, expected a file of a decoder alone, such as GPT-2");
  status = kb_encode(w->model->tokenizer, text, w->tokens, message);
  if (status != KB_OK) return status;
  if (w->tokens->count < 2) return kb_fail(message, KB_ARGUMENT, "a text has %lu tokens, expected at least two", (unsigned long)w->tokens->count);
  for (i = 0; i < w->tokens->count && i < most; i++) kb_push_int(&w->ids, w->tokens->ids[i]);
  w->scores = malloc(w->ids.count * sizeof *w->scores + 1);
  if (w->ids.failed || w->scores == NULL) return kb_no_memory(message);
  return kb_row_of(w->rows, w->ids.data, 1, w->tokens->count > most, message);
}

KB_API kb_status kb_writing_score(const kb_model *model, kb_text text, kb_writing **writing, kb_message *message) {
  kb_status status = new_writing(model, writing, message);
  return made(status == KB_OK ? begin_score(*writing, text, message) : status, writing);
}

KB_API void kb_writing_close(kb_writing *w) {
  if (w == NULL) return;
  kb_search_close(w->search);
  kb_decoding_close(&w->how);
  kb_rows_free(w->rows);
  kb_tokens_free(w->tokens);
  free(w->ids.data);
  free(w->scores);
  free(w->json.data);
  free(w);
}

KB_API kb_row kb_writing_row(const kb_writing *w) { return kb_rows_row(w->rows, 0); }

/* ---- steps ---- */

static kb_status not_finite(kb_message *message) {
  return kb_fail(message, KB_DAMAGED, "the network gives logits that are not finite: write the file again");
}

/* The log-probability of the next token of a text that is scored. */
static kb_status score(kb_writing *w, const float *logits, size_t size, kb_message *message) {
  int32_t token = w->ids.data[w->at + 1];
  double total = 0, largest;
  size_t i;
  if (size == 0 || token < 0 || (size_t)token >= size) return kb_fail(message, KB_DAMAGED, "the network gives %lu logits: write the file again", (unsigned long)size);
  largest = (double)logits[kb_most(logits, size)];
  for (i = 0; i < size; i++) total += exp((double)logits[i] - largest);
  w->scores[w->at] = (double)logits[token] - largest - log(total);
  return w->scores[w->at] - w->scores[w->at] == 0 ? (w->at++, KB_OK) : not_finite(message);
}

/* The text of ids, up to the end. */
static kb_status text_of(kb_writing *w, const kb_written *written, kb_text *text, kb_message *message) {
  const kb_tokenizer *t = w->model->tokenizer;
  size_t count = 0;
  while (count < written->count && written->ids[count] != t->parts[KB_SEP]) count++;
  return kb_detokenize(t, written->ids, count, w->tokens, text, message);
}

/* What is new of the text; `ended`: no token is to come. */
static kb_status piece_of(kb_writing *w, int ended, kb_text *piece, kb_message *message) {
  kb_text text;
  kb_status status = text_of(w, kb_search_texts(w->search), &text, message);
  if (status != KB_OK) return status;
  if (!ended && text.size >= 3 && memcmp(text.data + text.size - 3, UNFINISHED, 3) == 0) text.size -= 3; /* its other bytes are to come */
  if (text.size <= w->said) return KB_OK;
  piece->data = text.data + w->said, piece->size = text.size - w->said;
  w->said = text.size;
  return KB_OK;
}

static kb_status receive(kb_writing *w, const float *logits, size_t size, kb_steps *steps, kb_message *message) {
  kb_status status;
  if (!w->begun) return w->begun = 1, KB_OK;
  if (logits == NULL) return kb_fail(message, KB_ARGUMENT, "no logits of the steps that were asked for");
  status = w->search ? kb_search_push(w->search, logits, size, message) : score(w, logits, size, message);
  return status == KB_OK && w->told ? piece_of(w, 0, &steps->piece, message) : status;
}

KB_API kb_status kb_writing_next(kb_writing *w, const float *logits, size_t size, kb_steps *steps, kb_message *message) {
  static const int32_t none = 0;
  kb_asked asked;
  kb_status status;
  memset(steps, 0, sizeof *steps);
  if (w->failed) return kb_fail(message, KB_ARGUMENT, "the text has failed before");
  if (w->whole) {
    steps->ended = 1;
    return w->told ? piece_of(w, 1, &steps->piece, message) : KB_OK;
  }
  status = receive(w, logits, size, steps, message);
  w->failed = status != KB_OK;
  if (status != KB_OK) return status;
  if (w->search) asked = kb_search_asked(w->search);
  else asked.count = w->at + 1 < w->ids.count, asked.tokens = w->ids.data + w->at, asked.origins = &none, asked.column = w->at;
  steps->count = asked.count, steps->tokens = asked.tokens, steps->origins = asked.origins, steps->column = (int32_t)asked.column;
  w->whole = asked.count == 0;
  return KB_OK;
}

/* ---- the answer ---- */

static kb_status put_text(kb_writing *w, const kb_written *written, kb_text *text, kb_message *message) {
  kb_status status = text_of(w, written, text, message);
  if (status != KB_OK) return status;
  kb_put(&w->json, "{\"text\": ");
  kb_put_string(&w->json, *text);
  kb_put(&w->json, ", \"score\": ");
  kb_put_number(&w->json, (double)written->score);
  return KB_OK;
}

static kb_status put_texts(kb_writing *w, kb_message *message) {
  const kb_written *texts = kb_search_texts(w->search);
  size_t i, count = (size_t)w->how.sequences;
  kb_text text;
  kb_status status = put_text(w, texts, &text, message);
  for (i = 0; i < count && status == KB_OK; i++) {
    if (count > 1) kb_put(&w->json, i ? ", " : ", \"sequences\": [");
    if (count > 1) status = put_text(w, texts + i, &text, message);
    if (count > 1) kb_put(&w->json, i + 1 < count ? "}" : "}]");
    if (status == KB_OK) kb_tell_label(w->rows, kb_tell_text(w->rows, text), (double)texts[i].score, (int32_t)i, i == 0);
  }
  return status;
}

static kb_status put_scores(kb_writing *w, kb_message *message) {
  size_t i, count = w->ids.count - 1;
  double sum = 0;
  (void)message;
  for (i = 0; i < count; i++) {
    kb_text piece = w->model->tokenizer->pieces[w->ids.data[i + 1]];
    kb_put(&w->json, i ? ", " : "{\"tokens\": [");
    kb_put_string(&w->json, piece);
    kb_tell_label(w->rows, piece, w->scores[i], w->ids.data[i + 1], 0);
    sum += w->scores[i];
  }
  for (i = 0; i < count; i++) {
    kb_put(&w->json, i ? ", " : "], \"log_probabilities\": [");
    kb_put_number(&w->json, w->scores[i]);
  }
  kb_put(&w->json, "], \"score\": ");
  kb_put_number(&w->json, sum);
  kb_put(&w->json, ", \"perplexity\": ");
  kb_put_number(&w->json, exp(-sum / (double)count));
  return KB_OK;
}

KB_API kb_status kb_writing_answer(kb_writing *w, kb_text *answer, kb_message *message) {
  kb_told *told = &w->rows->told;
  kb_status status;
  answer->data = NULL, answer->size = 0;
  if (!w->whole || w->failed) return kb_fail(message, KB_ARGUMENT, "the text has not ended");
  w->json.count = 0, w->json.failed = 0;
  kb_told_clear(told);
  status = w->search ? put_texts(w, message) : put_scores(w, message);
  if (status != KB_OK) return status;
  kb_put_truncated(&w->json, w->rows);
  if (w->json.failed == KB_NOT_FINITE) return not_finite(message);
  if (w->json.failed || !kb_told_end(w->rows)) return kb_no_memory(message);
  if (w->search) told->view.text = told->view.labels->name;
  answer->data = (const char *)w->json.data, answer->size = w->json.count;
  return KB_OK;
}

KB_API const kb_result *kb_writing_result(const kb_writing *w) { return w == NULL ? NULL : kb_rows_result(w->rows); }
