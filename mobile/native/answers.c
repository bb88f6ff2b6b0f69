/* Rows and answers: json, and the kinds of one row, or of one row a choice. The rules are answers/'s. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "answers.h"

/* ---- json ---- */

void kb_put(kb_bytes *json, const char *text) { kb_push_bytes(json, text, strlen(text)); }

void kb_put_number(kb_bytes *json, double value) {
  char text[40];
  size_t i;
  if (!(value - value == 0)) { /* JSON has no NaN and no infinity */
    json->failed = KB_NOT_FINITE;
    return;
  }
  snprintf(text, sizeof text, "%.17g", value);
  for (i = 0; text[i]; i++)
    if (strchr("+-0123456789e", text[i]) == NULL) text[i] = '.'; /* the locale's decimal point */
  kb_put(json, text);
}

void kb_put_string(kb_bytes *json, kb_text text) {
  size_t i;
  kb_push_byte(json, '"');
  for (i = 0; i < text.size; i++) {
    uint8_t c = (uint8_t)text.data[i];
    char escaped[8];
    if (c >= 32 && c != '"' && c != '\\') {
      kb_push_byte(json, c);
      continue;
    }
    snprintf(escaped, sizeof escaped, "\\u%04x", c);
    kb_put(json, escaped);
  }
  kb_push_byte(json, '"');
}

void kb_put_codes(kb_bytes *json, const uint32_t *codes, size_t count) {
  size_t i;
  kb_push_byte(json, '"');
  for (i = 0; i < count; i++) {
    char escaped[8];
    if (codes[i] >= 32 && codes[i] != '"' && codes[i] != '\\') {
      kb_push_utf8(json, codes[i]);
      continue;
    }
    snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)codes[i]);
    kb_put(json, escaped);
  }
  kb_push_byte(json, '"');
}

void kb_put_truncated(kb_bytes *json, const kb_rows *rows) {
  size_t i;
  int any = 0;
  for (i = 0; i < rows->count; i++) any |= rows->rows[i].truncated;
  kb_put(json, any ? ", \"truncated\": true}" : "}");
}

int kb_is_blank(uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* ---- rows ---- */

/* A new row from the end of rows->ids on; NULL where there is no memory, or where rows->full says that there are too many. */
static kb_packed *new_row(kb_rows *rows) {
  kb_packed *row;
  rows->full = rows->count >= KB_MOST_ROWS;
  if (rows->full || !kb_reserve((void **)&rows->rows, &rows->room, rows->count + 1, sizeof *row)) return NULL;
  row = rows->rows + rows->count++;
  memset(row, 0, sizeof *row);
  row->from = rows->ids.count, row->position = -1;
  return row;
}

kb_packed *kb_row_add(kb_rows *rows, const int32_t *a, size_t a_count, const int32_t *b, size_t b_count, int pair, size_t *places) {
  kb_packed *row = new_row(rows);
  size_t i, items = pair ? rows->model->tokenizer->pair_count : rows->model->tokenizer->single_count;
  if (row == NULL) return NULL;
  kb_join(rows->model->tokenizer, a, a_count, b, b_count, pair, &rows->ids, &rows->segments, places);
  for (i = 0; places != NULL && i < items; i++) places[i] -= row->from;
  row->length = rows->ids.count - row->from;
  return rows->ids.failed || rows->segments.failed ? NULL : row;
}

kb_status kb_row_of(kb_rows *rows, const int32_t *ids, size_t count, int truncated, kb_message *message) {
  kb_packed *row = new_row(rows);
  size_t i;
  if (row == NULL) return kb_no_memory(message);
  row->length = count, row->truncated = truncated;
  for (i = 0; i < count; i++) kb_push_int(&rows->ids, ids[i]), kb_push_int(&rows->segments, 0);
  return rows->ids.failed || rows->segments.failed ? kb_no_memory(message) : KB_OK;
}

kb_status kb_row_pack(kb_rows *rows, kb_text first, const kb_text *second, kb_message *message) {
  const kb_tokens *made = &rows->work->view;
  kb_status status = kb_pack(rows->model->tokenizer, first, second, rows->model->longest, &rows->work->view, message);
  kb_packed *row;
  size_t i;
  if (status != KB_OK) return status;
  row = new_row(rows);
  if (row == NULL) return kb_no_memory(message);
  row->length = made->count, row->truncated = made->truncated;
  for (i = 0; i < made->count; i++) {
    kb_push_int(&rows->ids, made->ids[i]);
    kb_push_int(&rows->segments, made->segments[i]);
  }
  return rows->ids.failed || rows->segments.failed ? kb_no_memory(message) : KB_OK;
}

/* One row of a text or a pair. */
static kb_status plain_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  (void)words;
  if (count != rows->model->parts || count > 2)
    return kb_fail(message, KB_ARGUMENT, "received %lu texts, expected %lu", (unsigned long)count, (unsigned long)rows->model->parts);
  return kb_row_pack(rows, texts[0], count == 2 ? texts + 1 : NULL, message);
}

/* The same after a prompt. */
static kb_status prompted_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  kb_text both[2], before = rows->before;
  char *joined;
  kb_status status;
  if (before.size == 0 || count == 0 || count > 2) return plain_rows(rows, texts, count, words, message);
  joined = malloc(before.size + texts[0].size + 1);
  if (joined == NULL) return kb_no_memory(message);
  memcpy(joined, before.data, before.size);
  memcpy(joined + before.size, texts[0].data, texts[0].size);
  both[0].data = joined, both[0].size = before.size + texts[0].size;
  if (count == 2) both[1] = texts[1];
  status = plain_rows(rows, both, count, words, message);
  free(joined);
  return status;
}

/* A row for the text with each of its choices. */
static kb_status choice_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  size_t i;
  (void)words;
  if (count < 3) return kb_fail(message, KB_ARGUMENT, "an input has %lu choices, expected at least two", (unsigned long)(count ? count - 1 : 0));
  rows->choices = calloc(count - 1, sizeof *rows->choices);
  if (rows->choices == NULL) return kb_no_memory(message);
  rows->choice_count = count - 1;
  for (i = 1; i < count; i++) {
    kb_status status;
    if (texts[i].size == 0) return kb_fail(message, KB_ARGUMENT, "choice %lu is empty, expected a text", (unsigned long)i - 1);
    if (!kb_decode(texts[i], rows->choices + i - 1)) return kb_no_memory(message);
    status = kb_row_pack(rows, texts[0], texts + i, message);
    if (status != KB_OK) return status;
  }
  return KB_OK;
}

/* ---- answers ---- */

static kb_status classification(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  const kb_model *m = rows->model;
  const float *values = outputs[0];
  kb_bytes *json = &rows->json;
  size_t i, best = 0;
  (void)sizes, (void)message;
  for (i = 1; i < m->label_count; i++)
    if (values[i] > values[best]) best = i;
  kb_put(json, "{\"label\": ");
  kb_put_string(json, m->labels[best]);
  kb_put(json, ", \"score\": ");
  kb_put_number(json, (double)values[best]);
  for (i = 0; i < m->label_count; i++) {
    kb_put(json, i ? ", " : ", \"scores\": {");
    kb_put_string(json, m->labels[i]);
    kb_put(json, ": ");
    kb_put_number(json, (double)values[i]);
    kb_tell_label(rows, m->labels[i], (double)values[i], (int32_t)i, i == best);
  }
  kb_put(json, "}");
  kb_put_truncated(json, rows);
  return KB_OK;
}

static kb_status multi_label(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  const kb_model *m = rows->model;
  kb_bytes *json = &rows->json;
  size_t i, told = 0;
  (void)sizes, (void)message;
  kb_put(json, "{\"labels\": [");
  for (i = 0; i < m->label_count; i++) {
    int chosen = outputs[0][i] >= (float)(m->table_count ? m->table[i] : 0.5);
    kb_tell_label(rows, m->labels[i], (double)outputs[0][i], (int32_t)i, chosen);
    if (!chosen) continue;
    if (told++) kb_put(json, ", ");
    kb_put_string(json, m->labels[i]);
  }
  kb_put(json, "], \"scores\": {");
  for (i = 0; i < m->label_count; i++) {
    if (i) kb_put(json, ", ");
    kb_put_string(json, m->labels[i]);
    kb_put(json, ": ");
    kb_put_number(json, (double)outputs[0][i]);
  }
  kb_put(json, "}");
  kb_put_truncated(json, rows);
  return KB_OK;
}

static kb_status regression(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  if (sizes[0] != 1) return kb_fail(message, KB_ARGUMENT, "an output has %lu numbers, expected 1", (unsigned long)sizes[0]);
  kb_tell_value(rows, outputs[0][0]);
  kb_put(&rows->json, "{\"value\": ");
  kb_put_number(&rows->json, (double)outputs[0][0]);
  kb_put_truncated(&rows->json, rows);
  return KB_OK;
}

static kb_status vector(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  size_t i;
  (void)message;
  kb_put(&rows->json, "{\"values\": [");
  for (i = 0; i < sizes[0]; i++) {
    if (i) kb_put(&rows->json, ", ");
    kb_put_number(&rows->json, (double)outputs[0][i]);
    kb_tell_value(rows, outputs[0][i]);
  }
  kb_put(&rows->json, "]");
  kb_put_truncated(&rows->json, rows);
  return KB_OK;
}

static kb_status choice(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  kb_bytes *json = &rows->json;
  double *scores = malloc(rows->count * sizeof *scores), highest, total = 0;
  size_t i, best = 0;
  if (scores == NULL) return kb_no_memory(message);
  highest = (double)outputs[0][0];
  for (i = 0; i < rows->count; i++) {
    if (sizes[i] != 1) {
      free(scores);
      return kb_fail(message, KB_ARGUMENT, "an output has %lu numbers, expected 1", (unsigned long)sizes[i]);
    }
    if ((double)outputs[i][0] > highest) highest = (double)outputs[i][0];
  }
  for (i = 0; i < rows->count; i++) total += scores[i] = exp((double)outputs[i][0] - highest);
  for (i = 0; i < rows->count; i++) {
    scores[i] /= total;
    if (scores[i] > scores[best]) best = i;
  }
  kb_put(json, "{\"index\": ");
  kb_put_number(json, (double)best);
  kb_put(json, ", \"text\": ");
  kb_put_codes(json, rows->choices[best].data, rows->choices[best].count);
  kb_put(json, ", \"score\": ");
  kb_put_number(json, scores[best]);
  for (i = 0; i < rows->count; i++) {
    kb_put(json, i ? ", " : ", \"scores\": [");
    kb_put_number(json, scores[i]);
    kb_tell_label(rows, kb_tell_codes(rows, rows->choices[i].data, rows->choices[i].count), scores[i], (int32_t)i, i == best);
  }
  kb_put(json, "]");
  kb_put_truncated(json, rows);
  free(scores);
  return KB_OK;
}

const kb_kind kb_kinds[] = {
    {"classification", 1, 0, plain_rows, classification},
    {"multi_label", 1, 0, plain_rows, multi_label},
    {"regression", 0, 0, plain_rows, regression},
    {"vector", 0, 0, prompted_rows, vector},
    {"choice", 0, 0, choice_rows, choice},
    {"span", 0, 1, kb_span_rows, kb_span_answer},
    {"tags", 1, 1, kb_tags_rows, kb_tags_answer},
    {"tokens", 0, 0, kb_mask_rows, kb_mask_answer},
    {"generation", 0, 0, kb_prompt_rows, kb_prompt_answer},
    {NULL, 0, 0, NULL, NULL},
};

/* ---- calls ---- */

kb_status kb_rows_new(const kb_model *model, kb_rows **rows, kb_message *message) {
  kb_rows *made = calloc(1, sizeof *made);
  *rows = made;
  if (made != NULL) made->model = model, made->work = (kb_work *)kb_tokens_new();
  if (made != NULL && made->work != NULL) return KB_OK;
  kb_rows_free(made);
  *rows = NULL;
  return kb_no_memory(message);
}

static kb_status make(const kb_model *model, kb_text before, const kb_text *texts, size_t count, int32_t words, kb_rows **rows, kb_message *message) {
  kb_rows *made;
  kb_status status = kb_rows_new(model, &made, message);
  *rows = NULL;
  if (status != KB_OK) return status;
  made->before = before;
  status = model->kind->rows(made, texts, count, words, message);
  if (status == KB_OK && (made->starts.failed || made->ends.failed || made->words.failed || made->tokens.failed || made->masks.failed ||
                          made->ids.failed || made->segments.failed || made->text.failed))
    status = kb_no_memory(message);
  if (status == KB_OK && model->kind->per_token) { /* a question stands before its text */
    size_t skipped = model->kind->rows == kb_span_rows;
    if (!kb_told_source(made, texts + skipped, count - skipped)) status = kb_no_memory(message);
  }
  if (made->full)
    status = kb_fail(message, KB_ARGUMENT, "an input takes more than %lu rows of %lu tokens: split it", (unsigned long)KB_MOST_ROWS,
                     (unsigned long)model->longest);
  if (status == KB_OK) *rows = made;
  else kb_rows_free(made);
  return status;
}

KB_API kb_status kb_rows_make(const kb_model *model, const kb_text *texts, size_t count, int32_t words, kb_rows **rows, kb_message *message) {
  return make(model, model->before, texts, count, words, rows, message);
}

KB_API kb_status kb_rows_prompted(const kb_model *model, kb_text prompt, const kb_text *texts, size_t count, kb_rows **rows, kb_message *message) {
  kb_text before;
  kb_status status = kb_model_prompt(model, prompt, &before, message);
  *rows = NULL;
  return status == KB_OK ? make(model, before, texts, count, 0, rows, message) : status;
}

KB_API size_t kb_rows_count(const kb_rows *rows) { return rows->count; }

KB_API kb_row kb_rows_row(const kb_rows *rows, size_t number) {
  const kb_packed *row = rows->rows + number;
  kb_row view;
  view.length = row->length, view.ids = rows->ids.data + row->from, view.segments = rows->segments.data + row->from;
  view.position = row->position, view.truncated = row->truncated;
  return view;
}

KB_API void kb_rows_free(kb_rows *rows) {
  size_t i;
  if (rows == NULL) return;
  for (i = 0; i < rows->choice_count; i++) free(rows->choices[i].data);
  free(rows->choices);
  free(rows->rows);
  free(rows->ids.data);
  free(rows->segments.data);
  free(rows->text.data);
  free(rows->starts.data);
  free(rows->ends.data);
  free(rows->words.data);
  free(rows->tokens.data);
  free(rows->masks.data);
  free(rows->json.data);
  kb_told_free(&rows->told);
  kb_tokens_free((kb_tokens *)rows->work);
  free(rows);
}

KB_API kb_status kb_answer(const kb_model *model, kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_text *json, kb_message *message) {
  size_t i, k, width = model->kind->labelled ? model->label_count : model->kind->per_token ? kb_span_width(model) : 0;
  kb_status status;
  kb_told_clear(&rows->told);
  if (rows->model != model) return kb_fail(message, KB_ARGUMENT, "the rows are of another model");
  for (i = 0; i < rows->count; i++) {
    size_t wanted = width * (model->kind->per_token ? rows->rows[i].length : 1);
    if ((width && sizes[i] != wanted) || sizes[i] == 0)
      return kb_fail(message, KB_ARGUMENT, "output %lu has %lu numbers, expected %lu", (unsigned long)i, (unsigned long)sizes[i], (unsigned long)wanted);
    for (k = 0; k < sizes[i]; k++)
      if (!(outputs[i][k] - outputs[i][k] == 0)) return kb_fail(message, KB_ARGUMENT, "output %lu has numbers that are not finite", (unsigned long)i);
  }
  rows->json.count = 0, rows->json.failed = 0;
  status = model->kind->answer(rows, outputs, sizes, message);
  if (status == KB_OK && rows->json.failed == KB_NOT_FINITE)
    status = kb_fail(message, KB_ARGUMENT, "the outputs are finite, and the scores that are made of them are not");
  else if (status == KB_OK && (rows->json.failed || !kb_told_end(rows))) status = kb_no_memory(message);
  json->data = (const char *)rows->json.data, json->size = status == KB_OK ? rows->json.count : 0;
  return status;
}
