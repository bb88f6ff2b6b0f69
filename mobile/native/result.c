/* An answer as labels, spans and numbers, beside its json. */
#include <stdlib.h>

#include "answers.h"

static const kb_text nothing = {"", 0};

void kb_told_clear(kb_told *told) {
  told->labels.count = told->spans.count = told->entities.count = told->values.count = told->texts.count = 0;
  told->labels.failed = told->spans.failed = told->entities.failed = told->values.failed = told->texts.failed = 0;
  told->whole = 0;
  memset(&told->view, 0, sizeof told->view);
  told->view.text = nothing;
}

void kb_told_free(kb_told *told) {
  free(told->labels.data);
  free(told->spans.data);
  free(told->entities.data);
  free(told->values.data);
  free(told->texts.data);
  free(told->bytes.data);
}

kb_text kb_tell_codes(kb_rows *rows, const uint32_t *codes, size_t count) {
  kb_text text = {NULL, rows->told.texts.count};
  size_t i;
  for (i = 0; i < count; i++) kb_push_utf8(&rows->told.texts, codes[i]);
  text.size = rows->told.texts.count - text.size;
  return text;
}

kb_text kb_tell_text(kb_rows *rows, kb_text text) {
  kb_push_bytes(&rows->told.texts, text.data, text.size);
  text.data = NULL;
  return text;
}

void kb_tell_label(kb_rows *rows, kb_text name, double score, int32_t id, int chosen) {
  kb_labels *list = &rows->told.labels;
  kb_label label;
  label.name = name, label.score = score, label.id = id, label.chosen = chosen;
  if (!kb_reserve((void **)&list->data, &list->room, list->count + 1, sizeof label)) list->failed = 1;
  else list->data[list->count++] = label;
}

void kb_tell_span(kb_spans *list, const kb_text *label, size_t start, size_t end, double score) {
  kb_span span;
  memset(&span, 0, sizeof span);
  span.label = label ? *label : nothing, span.score = score, span.codes.start = start, span.codes.end = end;
  if (!kb_reserve((void **)&list->data, &list->room, list->count + 1, sizeof span)) list->failed = 1;
  else list->data[list->count++] = span;
}

void kb_tell_value(kb_rows *rows, float value) {
  kb_floats *list = &rows->told.values;
  if (!kb_reserve((void **)&list->data, &list->room, list->count + 1, sizeof value)) list->failed = 1;
  else list->data[list->count++] = value;
}

int kb_told_source(kb_rows *rows, const kb_text *texts, size_t count) {
  kb_ints *bytes = &rows->told.bytes;
  size_t i, at = 0;
  for (i = 0; i < count && kb_valid(texts[i]); i++) continue;
  if (i == count) return 1; /* they are those of rows->text as UTF-8 */
  for (i = 0; i < count; at += texts[i++].size) {
    if (i) kb_push_int(bytes, (int32_t)at++); /* the blank between two words */
    kb_code_starts(texts[i], at, bytes);
  }
  kb_push_int(bytes, (int32_t)at);
  return !bytes->failed;
}

/* Offsets and texts of spans; of each code point of rows->text its places as UTF-8, in the caller's bytes, as UTF-16. */
static void place(kb_spans *spans, const char *text, const int32_t *utf8, const int32_t *bytes, const int32_t *units) {
  size_t i;
  for (i = 0; i < spans->count; i++) {
    kb_span *span = spans->data + i;
    size_t start = span->codes.start, end = span->codes.end;
    span->text.data = text + utf8[start], span->text.size = (size_t)(utf8[end] - utf8[start]);
    span->bytes.start = (size_t)bytes[start], span->bytes.end = (size_t)bytes[end];
    span->units.start = (size_t)units[start], span->units.end = (size_t)units[end];
  }
}

static int place_all(kb_rows *rows) {
  kb_told *told = &rows->told;
  size_t i, n = rows->text.count;
  int32_t *utf8, *units;
  if (n > INT32_MAX / 4 || (utf8 = malloc((2 * n + 2) * sizeof *utf8)) == NULL) return 0;
  units = utf8 + n + 1, units[0] = 0;
  for (i = 0; i < n; i++) {
    utf8[i] = (int32_t)told->texts.count;
    units[i + 1] = units[i] + (rows->text.data[i] > 0xFFFF ? 2 : 1);
    kb_push_utf8(&told->texts, rows->text.data[i]);
  }
  utf8[n] = (int32_t)told->texts.count;
  if (!told->texts.failed) {
    const char *text = told->texts.count ? (const char *)told->texts.data : "";
    const int32_t *bytes = told->bytes.count ? told->bytes.data : utf8;
    place(&told->spans, text, utf8, bytes, units);
    place(&told->entities, text, utf8, bytes, units);
  }
  free(utf8);
  return !told->texts.failed;
}

int kb_told_end(kb_rows *rows) {
  kb_told *told = &rows->told;
  kb_result *view = &told->view;
  size_t i, at = 0;
  const char *texts;
  if (rows->model->kind->per_token && !place_all(rows)) return 0;
  if (told->labels.failed || told->spans.failed || told->entities.failed || told->values.failed || told->texts.failed) return 0;
  texts = told->texts.count ? (const char *)told->texts.data : "";
  for (i = 0; i < told->labels.count; i++) { /* what kb_tell_codes and kb_tell_text gave, in their order */
    kb_text *name = &told->labels.data[i].name;
    if (name->data == NULL) name->data = texts + at, at += name->size;
  }
  if (view->text.data == NULL) view->text.data = texts + at;
  view->labels = told->labels.data, view->label_count = told->labels.count;
  view->spans = told->spans.data, view->span_count = told->spans.count;
  view->entities = told->entities.data, view->entity_count = told->entities.count;
  view->values = told->values.data, view->value_count = told->values.count;
  for (i = 0; i < rows->count; i++) view->truncated |= rows->rows[i].truncated;
  return told->whole = 1;
}

KB_API const kb_result *kb_rows_result(const kb_rows *rows) { return rows != NULL && rows->told.whole ? &rows->told.view : NULL; }
