/* A question and a text -> the part of the text that answers it. The rules are answers/span.py's. */
#include <math.h>
#include <stdlib.h>

#include "answers.h"

/* Offsets of the context's tokens without the blanks around them. */
static kb_status context(kb_rows *rows, kb_text text, kb_message *message) {
  const kb_tokens *tokens = &rows->work->view;
  size_t i, n;
  int32_t *next, *last; /* of each character: the first at or after it that is no blank; the end of the last one before it */
  kb_status status = kb_tokenize(rows->model->tokenizer, text, &rows->work->view, message);
  if (status != KB_OK) return status;
  if (!kb_decode(text, &rows->text)) return kb_no_memory(message);
  n = rows->text.count;
  next = malloc((n + 1) * sizeof *next), last = malloc((n + 1) * sizeof *last);
  if (next == NULL || last == NULL) status = kb_no_memory(message);
  if (status == KB_OK) {
    next[n] = (int32_t)n, last[0] = 0;
    for (i = n; i-- > 0;) next[i] = kb_is_blank(rows->text.data[i]) ? next[i + 1] : (int32_t)i;
    for (i = 0; i < n; i++) last[i + 1] = kb_is_blank(rows->text.data[i]) ? last[i] : (int32_t)i + 1;
    for (i = 0; i < tokens->count; i++) {
      kb_push_int(&rows->starts, next[tokens->starts[i]]);
      kb_push_int(&rows->ends, last[tokens->ends[i]]);
    }
  }
  free(next);
  free(last);
  return status == KB_OK && (rows->starts.failed || rows->ends.failed) ? kb_no_memory(message) : status;
}

/* The tokens of which each window has most context: the smaller number beside them; a full window is worth .01 a token more
   than the short one at the end; of equal ones the first counts. */
static kb_status own(kb_rows *rows, size_t count, size_t room, kb_message *message) {
  size_t i, k;
  int32_t *number = calloc(count + 1, sizeof *number);
  long long *best = malloc((count + 1) * sizeof *best);
  if (number == NULL || best == NULL) {
    free(number), free(best);
    return kb_no_memory(message);
  }
  for (i = 0; i < count; i++) best[i] = -1;
  for (i = 0; i < rows->count; i++) {
    size_t begin = rows->rows[i].begin, size = room < count - begin ? room : count - begin;
    for (k = 0; k < size; k++) {
      long long value = 100 * (long long)(k < size - 1 - k ? k : size - 1 - k) + (long long)size;
      if (value > best[begin + k]) best[begin + k] = value, number[begin + k] = (int32_t)i;
    }
  }
  for (i = 0, k = 0; i < rows->count; i++) { /* the numbers ascend */
    rows->rows[i].own_begin = k;
    while (k < count && number[k] <= (int32_t)i) k++;
    rows->rows[i].own_end = k;
  }
  free(number);
  free(best);
  return KB_OK;
}

kb_status kb_span_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  const kb_model *m = rows->model;
  const kb_tokenizer *t = m->tokenizer;
  size_t i, at = 0, null = t->pair_count, first = t->pair_count, specials = t->pair_count - 2, room, kept, n, step, windows, asked;
  size_t *places;
  int32_t *question;
  kb_status status;
  (void)words;
  if (count != 2) return kb_fail(message, KB_ARGUMENT, "received %lu texts, expected a question and a context", (unsigned long)count);
  if (m->longest < specials + 2) return kb_fail(message, KB_ARGUMENT, "length is %lu, expected at least %lu", (unsigned long)m->longest, (unsigned long)specials + 2);
  for (i = t->pair_count; i-- > 0;) { /* the item that stands for no answer: cls, else the first special token */
    if (t->pair[i].text == (m->context_first ? 'A' : 'B')) at = i;
    if (t->pair[i].text) continue;
    first = i;
    if (t->pair[i].id == t->parts[KB_CLS]) null = i;
  }
  if (null == t->pair_count) null = first < t->pair_count ? first : 0;
  if (!kb_decode(texts[0], &rows->text)) return kb_no_memory(message);
  for (i = 0; i < rows->text.count; i++) rows->asked |= !kb_is_blank(rows->text.data[i]);
  status = kb_encode(t, texts[0], &rows->work->view, message);
  if (status != KB_OK) return status;
  room = m->longest - specials, asked = rows->work->view.count;
  kept = room / 2 < (size_t)m->question ? room / 2 : (size_t)m->question;
  kept = kept < asked ? kept : asked;
  question = malloc((kept + 1) * sizeof *question), places = malloc((t->pair_count + 1) * sizeof *places);
  if (question == NULL || places == NULL) status = kb_no_memory(message);
  else if (kept > 0) memcpy(question, rows->work->view.ids, kept * sizeof *question);
  if (status == KB_OK) status = context(rows, texts[1], message);
  room -= kept, n = rows->starts.count;
  step = room > 2 * (size_t)m->max_answer ? room - 2 * (size_t)m->max_answer : 0;
  step = step > (room + 1) / 2 ? step : (room + 1) / 2;
  step = step < (size_t)m->stride ? step : (size_t)m->stride;
  windows = n > room ? 1 + (n - room + step - 1) / step : 1;
  for (i = 0; i < windows && status == KB_OK; i++) {
    size_t begin = i * step, size = n - begin < room ? n - begin : room;
    const int32_t *part = rows->work->view.ids + begin;
    kb_packed *row = m->context_first ? kb_row_add(rows, part, size, question, kept, 1, places)
                                      : kb_row_add(rows, question, kept, part, size, 1, places);
    if (row == NULL) {
      status = kb_no_memory(message);
      break;
    }
    row->truncated = kept < asked;
    row->begin = begin, row->count = size, row->place = places[at], row->null = places[null];
  }
  free(question);
  free(places);
  return status == KB_OK ? own(rows, n, room, message) : status;
}

/* A span: its logits, characters, and its place in the order of equal ones. */
typedef struct found { float score; int32_t start, end; size_t place; } found;

static int before(const found *a, const found *b) { return a->score > b->score || (a->score == b->score && a->place < b->place); }

/* The best spans, best first: at most `most` of them. */
typedef struct ranking { found *items; size_t count, most; } ranking;

static void consider(ranking *r, const found *one) {
  size_t at;
  if (r->count == r->most && !before(one, r->items + r->count - 1)) return;
  if (r->count < r->most) r->count++;
  for (at = r->count - 1; at > 0 && before(one, r->items + at - 1); at--) r->items[at] = r->items[at - 1];
  r->items[at] = *one;
}

#define IMPOSSIBLE (-3e4f / 2) /* half of answers/span.py's: a sum below it is no answer's */

size_t kb_span_width(const kb_model *model) { return 2 * (size_t)(model->starts > 0 ? model->starts : 1); }

/* Calls for every span: which is best, or the sum of exp(score - top). */
static double spans(const kb_rows *rows, const float *const *outputs, ranking *r, double top) {
  size_t i, n, a, k, tokens = rows->starts.count, most = (size_t)rows->model->max_answer, wide = kb_span_width(rows->model);
  double total = 0;
  if (most > tokens) most = tokens ? tokens : 1;
  for (i = 0; i < rows->count && rows->asked; i++) {
    const kb_packed *row = rows->rows + i;
    for (n = row->own_begin; n < row->own_end; n++) {
      size_t local = n - row->begin;
      const float *at = outputs[i] + wide * (row->place + local);
      for (a = 0; a < most && local + a < row->count; a++) {
        found one;
        one.score = at[0] + at[wide * a + 1];
        for (k = 2; k < wide; k += 2)
          if (at[k] + at[wide * a + k + 1] > one.score) one.score = at[k] + at[wide * a + k + 1];
        one.start = rows->starts.data[n], one.end = rows->ends.data[n + a];
        one.place = n * most + a;
        if (one.end <= one.start || !(one.score - one.score == 0) || one.score < IMPOSSIBLE) continue;
        if (r != NULL) consider(r, &one);
        else total += exp((double)one.score - top);
      }
    }
  }
  return total;
}

static void put_span(kb_rows *rows, const found *one, double score) {
  kb_tell_span(&rows->told.spans, NULL, (size_t)one->start, (size_t)one->end, score);
  kb_bytes *json = &rows->json;
  kb_put(json, "{\"text\": ");
  kb_put_codes(json, rows->text.data + one->start, (size_t)(one->end - one->start));
  kb_put(json, ", \"start\": ");
  kb_put_number(json, one->start);
  kb_put(json, ", \"end\": ");
  kb_put_number(json, one->end);
  kb_put(json, ", \"score\": ");
  kb_put_number(json, score);
}

/* The answer, its alternatives and their probabilities; best[0 .. count) are the best spans of different characters. */
static void put_answer(kb_rows *rows, const float *const *outputs, found *best, size_t count, float null) {
  const kb_model *m = rows->model;
  double top = (double)best[0].score, total = 0;
  size_t i, chosen = 0, told = 0;
  if (m->unanswerable) {
    size_t place = 0;
    while (place < count && best[place].score >= null) place++;
    memmove(best + place + 1, best + place, (count - place) * sizeof *best);
    best[place].score = null, best[place].start = best[place].end = 0;
    count++;
    chosen = (double)null - top > m->null_threshold ? place : place == 0;
    if ((double)null > top) top = (double)null;
    total = exp((double)null - top);
  }
  total += spans(rows, outputs, NULL, top);
  put_span(rows, best + chosen, exp((double)best[chosen].score - top) / total);
  for (i = 0; i < count && told + 1 < (size_t)m->n_best; i++) {
    if (i == chosen) continue;
    kb_put(&rows->json, told++ ? ", " : ", \"alternatives\": [");
    put_span(rows, best + i, exp((double)best[i].score - top) / total);
    kb_put(&rows->json, "}");
  }
  if (told) kb_put(&rows->json, "]");
  kb_put_truncated(&rows->json, rows);
}

kb_status kb_span_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  size_t wanted = (size_t)rows->model->n_best, count = 0, i, k, cells = rows->starts.count * (size_t)rows->model->max_answer, wide = kb_span_width(rows->model);
  ranking r;
  float null = 0;
  (void)sizes;
  r.count = 0, r.most = 8 * wanted < cells ? 8 * wanted : cells + 1;
  r.items = malloc((r.most + 1) * sizeof *r.items);
  if (r.items == NULL) return kb_no_memory(message);
  for (i = 0; i < rows->count; i++) {
    const float *at = outputs[i] + wide * rows->rows[i].null;
    float sum = at[0] + at[1];
    for (k = 2; k < wide; k++) sum += at[k];
    if (i == 0 || sum < null) null = sum;
  }
  spans(rows, outputs, &r, 0);
  for (i = 0; i < r.count && count < wanted; i++) { /* of equal characters the best */
    for (k = 0; k < count && (r.items[k].start != r.items[i].start || r.items[k].end != r.items[i].end); k++) continue;
    if (k == count) r.items[count++] = r.items[i];
  }
  if (count > 0) {
    put_answer(rows, outputs, r.items, count, null);
  } else {
    kb_tell_span(&rows->told.spans, NULL, 0, 0, 0);
    kb_put(&rows->json, "{\"text\": \"\", \"start\": 0, \"end\": 0, \"score\": 0.0");
    kb_put_truncated(&rows->json, rows);
  }
  free(r.items);
  return KB_OK;
}
