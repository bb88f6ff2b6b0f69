/* Texts -> tokens and rows: added tokens first, then the kind's own rules, then packing. The rules are text/base.py's. */
#include <stdlib.h>

#include "internal.h"

KB_API int32_t kb_version(void) { return KB_VERSION; }

KB_API kb_tokens *kb_tokens_new(void) { return calloc(1, sizeof(kb_work)); }

KB_API void kb_tokens_free(kb_tokens *tokens) {
  kb_work *w = (kb_work *)tokens;
  if (w == NULL) return;
  free(w->ids.data);
  free(w->starts.data);
  free(w->ends.data);
  free(w->segments.data);
  free(w->codes.data);
  free(w->form.data);
  free(w->scratch.data);
  free(w->form_starts.data);
  free(w->form_ends.data);
  free(w->word.data);
  free(w->text.data);
  free(w->sources.data);
  free(w->parts.data);
  free(w->inner.data);
  free(w->slots);
  free(w->memos);
  free(w->heap);
  free(w->lattice);
  free(w);
}

int kb_work_failed(const kb_work *w) {
  return w->ids.failed || w->starts.failed || w->ends.failed || w->segments.failed || w->codes.failed || w->form.failed ||
         w->scratch.failed || w->form_starts.failed || w->form_ends.failed || w->word.failed || w->sources.failed ||
         w->parts.failed || w->inner.failed;
}

static void reset(kb_work *w) {
  w->ids.count = w->starts.count = w->ends.count = w->segments.count = 0;
  w->ids.failed = w->starts.failed = w->ends.failed = w->segments.failed = w->codes.failed = w->form.failed = 0;
  w->scratch.failed = w->form_starts.failed = w->form_ends.failed = w->word.failed = w->sources.failed = 0;
  w->parts.failed = w->inner.failed = 0;
}

/* Adds to the offsets from `from` on. */
static void shift(kb_work *w, size_t from, size_t by) {
  size_t i;
  for (i = from; i < w->starts.count && by > 0; i++) w->starts.data[i] += (int32_t)by, w->ends.data[i] += (int32_t)by;
}

/* An added token from character `begin` to `end`; byte-level BPE leaves out the blanks that it has taken in. */
static void push_added(const kb_tokenizer *t, kb_work *w, int32_t id, size_t begin, size_t end, int offsets) {
  size_t first = begin, last = end;
  kb_push_int(&w->ids, id);
  if (!offsets) return;
  if (t->lengths != NULL && !t->metaspace) {
    while (first < end && kb_flags(w->codes.data[first]) & KB_F_BLANK) first++;
    if (t->add_prefix_space && begin == 0 && first == 1) first = 0; /* as the first token's */
    while (last > first && kb_flags(w->codes.data[last - 1]) & KB_F_BLANK) last--;
  }
  kb_push_int(&w->starts, (int32_t)first);
  kb_push_int(&w->ends, (int32_t)last);
}

/* Offsets in the form from `low` on -> in the text from `begin` on. */
void kb_place(kb_work *w, size_t from, size_t low, size_t begin) {
  size_t i, n = w->form.count;
  for (i = from; i < w->starts.count; i++) {
    size_t a = low + (size_t)w->starts.data[i], b = low + (size_t)w->ends.data[i];
    int32_t start = (int32_t)begin + (a < n ? w->form_starts.data[a] : n > 0 ? w->form_ends.data[n - 1] : 0);
    w->starts.data[i] = start;
    w->ends.data[i] = b > a && b <= n ? (int32_t)begin + w->form_ends.data[b - 1] : start;
  }
}

/* A text between the tokens that are found as they are written: its normalised form is cut at the others. */
static kb_status between(const kb_tokenizer *t, kb_work *w, size_t begin, size_t end, int offsets, kb_message *message) {
  const uint32_t *codes = w->codes.data + begin;
  size_t i, from = w->starts.count, found = 0;
  kb_status status = KB_OK;
  if (t->normal.count == 0) {
    status = t->plain(t, w, codes, end - begin, begin == 0, offsets, message);
    if (offsets) shift(w, from, begin);
    return status;
  }
  w->form.count = w->form_starts.count = w->form_ends.count = 0;
  if (t->form != NULL) {
    status = t->form(t, w, codes, end - begin, message);
    if (status != KB_OK) return status;
  } else {
    for (i = 0; i < end - begin; i++) {
      kb_push_code(&w->form, codes[i]);
      kb_push_int(&w->form_starts, (int32_t)i);
      kb_push_int(&w->form_ends, (int32_t)i + 1);
    }
  }
  if (kb_work_failed(w)) return kb_no_memory(message);
  kb_matcher_split(&t->normal, w->form.data, w->form.count, &w->inner);
  for (i = 0; i < w->inner.count; i++) found += w->inner.data[i].id >= 0;
  if (found == 0 && !offsets) return t->plain(t, w, codes, end - begin, begin == 0, 0, message);
  for (i = 0; i < w->inner.count && status == KB_OK; i++) {
    kb_part part = w->inner.data[i];
    size_t first = w->starts.count;
    if (part.id >= 0) {
      push_added(t, w, part.id, begin + (size_t)w->form_starts.data[part.begin], begin + (size_t)w->form_ends.data[part.end - 1], offsets);
      continue;
    }
    status = t->formed(t, w, w->form.data + part.begin, part.end - part.begin,
                       offsets && begin + (size_t)w->form_starts.data[part.begin] == 0, offsets, message);
    if (offsets) kb_place(w, first, part.begin, begin);
  }
  return status;
}

/* Pushes the tokens of a text. */
static kb_status run(const kb_tokenizer *t, kb_text text, kb_work *w, int offsets, kb_message *message) {
  size_t i;
  kb_status status = KB_OK;
  if (text.size > KB_MOST_BYTES) return kb_fail(message, KB_ARGUMENT, "a text of %lu bytes, expected at most 2^30", (unsigned long)text.size);
  if (!kb_decode(text, &w->codes)) return kb_no_memory(message);
  if (t->added_count == 0) {
    status = t->plain(t, w, w->codes.data, w->codes.count, 1, offsets, message);
  } else {
    kb_matcher_split(&t->raw, w->codes.data, w->codes.count, &w->parts);
    for (i = 0; i < w->parts.count && status == KB_OK; i++) {
      kb_part part = w->parts.data[i];
      if (part.id >= 0) push_added(t, w, part.id, part.begin, part.end, offsets);
      else status = between(t, w, part.begin, part.end, offsets, message);
    }
  }
  return status == KB_OK && kb_work_failed(w) ? kb_no_memory(message) : status;
}

/* Shows what was pushed, and nothing after a failure. */
static kb_status show(kb_work *w, kb_status status) {
  w->view.count = status == KB_OK ? w->ids.count : 0;
  w->view.ids = w->ids.data, w->view.starts = w->starts.data, w->view.ends = w->ends.data;
  w->view.segments = w->segments.data;
  return status;
}

KB_API kb_status kb_encode(const kb_tokenizer *tokenizer, kb_text text, kb_tokens *tokens, kb_message *message) {
  kb_work *w = (kb_work *)tokens;
  reset(w);
  return show(w, run(tokenizer, text, w, 0, message));
}

KB_API kb_status kb_tokenize(const kb_tokenizer *tokenizer, kb_text text, kb_tokens *tokens, kb_message *message) {
  kb_work *w = (kb_work *)tokens;
  reset(w);
  return show(w, run(tokenizer, text, w, 1, message));
}

void kb_join(const kb_tokenizer *t, const int32_t *a, size_t a_count, const int32_t *b, size_t b_count, int pair, kb_ints *ids,
             kb_ints *segments, size_t *places) {
  const kb_item *items = pair ? t->pair : t->single;
  size_t i, k, count = pair ? t->pair_count : t->single_count, begin = ids->count;
  for (i = 0; i < count; i++) {
    const int32_t *from = items[i].text == 'B' ? b : items[i].text ? a : &items[i].id;
    size_t size = items[i].text == 'B' ? b_count : items[i].text ? a_count : 1;
    if (places != NULL) places[i] = ids->count;
    for (k = 0; k < size; k++) {
      kb_push_int(ids, from[k]);
      kb_push_int(segments, items[i].segment);
    }
  }
  if (ids->count == begin) { /* no text, of a template without special tokens: a network reads at least one token */
    kb_push_int(ids, t->parts[KB_PAD]);
    kb_push_int(segments, 0);
  }
}

KB_API kb_status kb_pack(const kb_tokenizer *t, kb_text first, const kb_text *second, size_t length, kb_tokens *tokens,
                         kb_message *message) {
  kb_work *w = (kb_work *)tokens;
  size_t a, b = 0, all, texts = second == NULL ? 1 : 2;
  size_t around = (second == NULL ? t->single_count : t->pair_count) - texts;
  int32_t *copy;
  kb_status status;
  reset(w);
  w->view.truncated = 0;
  status = run(t, first, w, 0, message);
  a = w->ids.count;
  if (status == KB_OK && second != NULL) status = run(t, *second, w, 0, message);
  if (status != KB_OK) return show(w, status);
  all = w->ids.count, b = all - a;
  if (length > 0 && all + around > length) {
    size_t budget, half, kept_a, kept_b;
    if (length < around)
      return show(w, kb_fail(message, KB_ARGUMENT, "length is %lu, expected at least %lu: room for the special tokens",
                             (unsigned long)length, (unsigned long)around));
    budget = length - around, half = budget / 2; /* the longer text loses its end first */
    kept_a = budget > b && budget - b > budget - half ? budget - b : budget - half;
    kept_b = budget > a && budget - a > half ? budget - a : half;
    memmove(w->ids.data + (kept_a < a ? kept_a : a), w->ids.data + a, b * sizeof *w->ids.data);
    a = kept_a < a ? kept_a : a, b = kept_b < b ? kept_b : b;
    w->view.truncated = 1;
  }
  copy = malloc((a + b + 1) * sizeof *copy);
  if (copy == NULL) return show(w, kb_no_memory(message));
  if (a + b > 0) memcpy(copy, w->ids.data, (a + b) * sizeof *copy);
  w->ids.count = 0;
  kb_join(t, copy, a, copy + a, b, second != NULL, &w->ids, &w->segments, NULL);
  free(copy);
  return show(w, kb_work_failed(w) ? kb_no_memory(message) : KB_OK);
}
