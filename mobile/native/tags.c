/* A label for every word, and the entities that the labels make. The rules are answers/tags.py's and answers/crf.py's. */
#include <math.h>
#include <stdlib.h>

#include "answers.h"

/* ---- words ---- */

/* The words of rows->text by the rule of text/words.py -> rows->starts, rows->ends. */
static void split(kb_rows *rows) {
  enum { BLANK, OTHER, LETTER, MARK } before = BLANK, now;
  size_t i;
  for (i = 0; i < rows->text.count; i++) {
    uint32_t flags = kb_flags(rows->text.data[i]);
    now = flags & KB_F_BLANK ? BLANK : flags & (KB_F_MARK | KB_F_DROP) ? MARK : flags & KB_F_WORD && !(flags & KB_F_CJK) ? LETTER : OTHER;
    if (now == BLANK) {
      if (before != BLANK) kb_push_int(&rows->ends, (int32_t)i);
    } else if (before == BLANK || now == OTHER || (now == LETTER && before == OTHER)) {
      if (before != BLANK) kb_push_int(&rows->ends, (int32_t)i);
      kb_push_int(&rows->starts, (int32_t)i);
    }
    if (now != MARK) before = now;
    else if (before == BLANK) before = LETTER;
  }
  if (before != BLANK) kb_push_int(&rows->ends, (int32_t)rows->text.count);
}

/* Words as they are given -> rows->text, joined by blanks. */
static kb_status given(kb_rows *rows, const kb_text *texts, size_t count, kb_message *message) {
  size_t i, k;
  for (i = 0; i < count; i++) {
    kb_codes *word = &rows->work->codes;
    if (!kb_decode(texts[i], word)) return kb_no_memory(message);
    if (i) kb_push_code(&rows->text, ' ');
    kb_push_int(&rows->starts, (int32_t)rows->text.count);
    for (k = 0; k < word->count; k++) kb_push_code(&rows->text, word->data[k]);
    kb_push_int(&rows->ends, (int32_t)rows->text.count);
  }
  return KB_OK;
}

/* What is tokenized: the words joined by blanks, as UTF-8; where each begins and ends in it, of given words without the
   white space at their edges. */
typedef struct joined { kb_bytes text; kb_ints starts, ends; } joined;

static void join(const kb_rows *rows, int words, joined *j) {
  size_t i, at = 0;
  for (i = 0; i < rows->starts.count; i++) {
    size_t begin = (size_t)rows->starts.data[i], end = (size_t)rows->ends.data[i], low = begin, high = end, k;
    if (i) kb_push_byte(&j->text, ' '), at++;
    for (k = begin; k < end; k++) kb_push_utf8(&j->text, rows->text.data[k]);
    while (words && low < end && kb_is_blank(rows->text.data[low])) low++;
    while (words && high > low && kb_is_blank(rows->text.data[high - 1])) high--;
    kb_push_int(&j->starts, (int32_t)(at + low - begin));
    kb_push_int(&j->ends, (int32_t)(at + high - begin));
    at += end - begin;
  }
}

/* The first token of each word, -1 where it has none -> first[words]. */
static void first_tokens(const joined *j, const kb_tokens *tokens, int32_t *first) {
  size_t i, words = j->starts.count;
  for (i = 0; i < words; i++) first[i] = -1;
  for (i = tokens->count; i-- > 0;) { /* of several the last that is written: the first token */
    size_t low = 0, high = words; /* the first word that ends after the token's beginning; empty words end nowhere */
    int32_t begin;
    while (low < high) {
      size_t middle = low + (high - low) / 2;
      if (j->ends.data[middle] > tokens->starts[i]) high = middle;
      else low = middle + 1;
    }
    while (low < words && j->ends.data[low] <= j->starts.data[low]) low++;
    if (low == words) continue;
    begin = j->starts.data[low] > tokens->starts[i] ? j->starts.data[low] : tokens->starts[i];
    if (begin < tokens->ends[i]) first[low] = (int32_t)i;
  }
}

/* The window in which a token has most context on its poorer side, the first of equal ones. */
static size_t window_of(long token, long count, long room, long step) {
  long from = token - room + step, number, last = count > room ? (count - room + step - 1) / step : 0, best = -2;
  size_t found = 0;
  long k, tries = (room + step - 1) / step;
  number = from > 0 ? from / step : 0;
  for (k = 0; k < tries; k++) {
    long at = number + k, left = token - at * step, end = at * step + room < count ? at * step + room : count;
    long right = end - 1 - token, poorer = at <= last && left >= 0 ? (left < right ? left : right) : -1;
    if (k == 0 || poorer > best) best = poorer, found = (size_t)at;
  }
  return found;
}

/* One window's row: its tokens, and the words that it answers for, which begin at *word: later words have later windows. */
static kb_status window(kb_rows *rows, const int32_t *first, const size_t *answering, size_t number, size_t begin, size_t end, size_t lead,
                        size_t *word, kb_message *message) {
  kb_packed *row = kb_row_add(rows, rows->work->view.ids + begin, end - begin, NULL, 0, 0, NULL);
  size_t i;
  if (row == NULL) return kb_no_memory(message);
  row->own_begin = rows->words.count;
  for (i = *word; i < rows->starts.count && (first[i] < 0 || answering[i] == number); i++) {
    if (first[i] < 0) continue;
    kb_push_int(&rows->words, (int32_t)i);
    kb_push_int(&rows->tokens, first[i] - (int32_t)begin + (int32_t)lead);
  }
  row->own_end = rows->words.count, *word = i;
  return KB_OK;
}

kb_status kb_tags_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  const kb_tokenizer *t = rows->model->tokenizer;
  size_t i, lead = 0, specials = t->single_count - 1, room, step, tokens, windows, word = 0;
  size_t *answering = NULL;
  int32_t *first = NULL;
  joined j;
  kb_text text;
  kb_status status = KB_OK;
  memset(&j, 0, sizeof j);
  if (count != 1 && !words) return kb_fail(message, KB_ARGUMENT, "received %lu texts, expected one, or words", (unsigned long)count);
  if (rows->model->longest <= specials) return kb_fail(message, KB_ARGUMENT, "length is %lu, expected at least %lu", (unsigned long)rows->model->longest, (unsigned long)specials + 1);
  while (t->single[lead].text == 0) lead++;
  room = rows->model->longest - specials;
  step = rows->model->stride && (size_t)rows->model->stride < room ? (size_t)rows->model->stride : rows->model->stride ? room : room / 2;
  if (step < 1) step = 1;
  if (words) status = given(rows, texts, count, message);
  else if (!kb_decode(texts[0], &rows->text)) status = kb_no_memory(message);
  else split(rows);
  if (status == KB_OK) join(rows, words, &j);
  if (j.text.failed || j.starts.failed || j.ends.failed || rows->starts.failed || rows->ends.failed) status = kb_no_memory(message);
  text.data = (const char *)j.text.data, text.size = j.text.count;
  if (status == KB_OK) status = kb_tokenize(t, text, &rows->work->view, message);
  if (status == KB_OK) {
    first = malloc((rows->starts.count + 1) * sizeof *first), answering = malloc((rows->starts.count + 1) * sizeof *answering);
    if (first == NULL || answering == NULL) status = kb_no_memory(message);
  }
  if (status == KB_OK) {
    tokens = rows->work->view.count;
    first_tokens(&j, &rows->work->view, first);
    for (i = 0; i < rows->starts.count; i++)
      answering[i] = first[i] < 0 ? 0 : window_of(first[i], (long)tokens, (long)room, (long)step);
    windows = tokens > room ? 1 + (tokens - room + step - 1) / step : 1;
    for (i = 0; i < windows && status == KB_OK; i++)
      status = window(rows, first, answering, i, i * step, i * step + room < tokens ? i * step + room : tokens, lead, &word, message);
  }
  free(first);
  free(answering);
  free(j.text.data);
  free(j.starts.data);
  free(j.ends.data);
  return status;
}

/* ---- the conditional random field ---- */

static double log_sum(const double *values, size_t count) {
  double highest = values[0], total = 0;
  size_t i;
  for (i = 1; i < count; i++) highest = values[i] > highest ? values[i] : highest;
  for (i = 0; i < count; i++) total += exp(values[i] - highest);
  return log(total) + highest;
}

static double highest_of(const double *values, size_t count) {
  double highest = values[0];
  size_t i;
  for (i = 1; i < count; i++) highest = values[i] > highest ? values[i] : highest;
  return highest;
}

/* states[w, l]: the total of all paths up to word w that end in label l. back: from the last word to the first. */
static void along(const double *emissions, const double *table, size_t w, size_t l, int back, double (*total)(const double *, size_t),
                  double *states, double *scratch) {
  size_t t, i, k;
  for (t = 0; t < w; t++) {
    size_t at = back ? w - 1 - t : t, before = back ? at + 1 : at - 1;
    for (k = 0; k < l; k++) {
      double more;
      if (t == 0) {
        more = table[(back ? l + 1 : l) * l + k];
      } else {
        for (i = 0; i < l; i++) scratch[i] = states[before * l + i] + (back ? table[k * l + i] : table[i * l + k]);
        more = total(scratch, l);
      }
      states[at * l + k] = emissions[at * l + k] + more;
    }
  }
}

/* The best label of each of w words, and its marginal. 0: no memory. */
static int crf(const double *emissions, const double *table, size_t w, size_t l, int32_t *labels, float *scores) {
  double *ahead = malloc((2 * w + 2) * l * sizeof *ahead), *back = ahead + w * l, *scratch = back + w * l, *after = scratch + l;
  size_t t, k;
  if (ahead == NULL) return 0;
  along(emissions, table, w, l, 0, highest_of, ahead, scratch);
  for (k = 0; k < l; k++) after[k] = table[(l + 1) * l + k];
  for (t = w; t-- > 0;) {
    size_t best = 0;
    for (k = 1; k < l; k++)
      if (ahead[t * l + k] + after[k] > ahead[t * l + best] + after[best]) best = k;
    labels[t] = (int32_t)best;
    for (k = 0; k < l; k++) after[k] = table[k * l + best];
  }
  along(emissions, table, w, l, 0, log_sum, ahead, scratch);
  along(emissions, table, w, l, 1, log_sum, back, scratch);
  for (t = 0; t < w; t++) {
    for (k = 0; k < l; k++) scratch[k] = ahead[t * l + k] + back[t * l + k] - emissions[t * l + k];
    scores[t] = (float)exp(scratch[labels[t]] - log_sum(scratch, l));
  }
  free(ahead);
  return 1;
}

/* ---- entities ---- */

static const kb_text outside = {"O", 1};

/* B, I, E, S or O, and the type, of a label. */
static char split_tag(kb_text label, kb_text *type) {
  char tag = label.data[0];
  type->data = label.data + 1, type->size = label.size - 1;
  if (type->size > 0 && type->data[0] == '-') type->data++, type->size--;
  if (type->size == 0) *type = kb_literal("_");
  return tag == 'L' ? 'E' : tag == 'U' ? 'S' : tag == 'M' ? 'I' : tag;
}

/* Whether the labels are of BIO or IOBES and not names by themselves. */
static int has_spans(const kb_model *m) {
  size_t i, others = 0;
  for (i = 0; i < m->label_count; i++) {
    kb_text label = m->labels[i];
    if (kb_same(label, outside)) continue;
    others++;
    if (memchr("BIESLUM", label.data[0], 7) == NULL || (label.size > 1 && (label.data[1] != '-' || label.size == 2))) return 0;
    if (memchr(label.data, '\n', label.size) != NULL) return 0;
  }
  return others > 0;
}

static void put_entity(kb_rows *rows, kb_text type, size_t first, size_t last, const float *scores, int more) {
  kb_bytes *json = &rows->json;
  float least = scores[first];
  size_t i, start = (size_t)rows->starts.data[first], end = (size_t)rows->ends.data[last];
  kb_put(json, more ? ", {\"label\": " : "{\"label\": ");
  kb_put_string(json, type);
  kb_put(json, ", \"start\": ");
  kb_put_number(json, (double)start);
  kb_put(json, ", \"end\": ");
  kb_put_number(json, (double)end);
  kb_put(json, ", \"text\": ");
  kb_put_codes(json, rows->text.data + start, end - start);
  for (i = first + 1; i <= last; i++)
    if (scores[i] < least) least = scores[i];
  kb_put(json, ", \"score\": ");
  kb_put_number(json, (double)least);
  kb_put(json, "}");
  kb_tell_span(&rows->told.entities, &type, start, end, (double)least);
}

/* By the rules of conlleval, which mend what is not legal. */
static void put_entities(kb_rows *rows, const int32_t *numbers, const float *scores) {
  size_t i, words = rows->starts.count, begun = 0;
  char before = 'O';
  kb_text type = {"", 0};
  int told = 0;
  for (i = 0; i <= words && has_spans(rows->model); i++) {
    kb_text other, label = i < words && numbers[i] >= 0 ? rows->model->labels[numbers[i]] : outside;
    char now = split_tag(label, &other);
    int same = kb_same(type, other);
    if (before != 'O' && (before == 'E' || before == 'S' || now == 'B' || now == 'S' || now == 'O' || !same))
      put_entity(rows, type, begun, i - 1, scores, told++);
    if (now != 'O' && (now == 'B' || now == 'S' || before == 'E' || before == 'S' || before == 'O' || !same)) begun = i;
    before = now, type = other;
  }
}

static void put_answer(kb_rows *rows, const int32_t *numbers, const float *scores) {
  kb_bytes *json = &rows->json;
  size_t i, words = rows->starts.count;
  kb_put(json, "{\"words\": [");
  for (i = 0; i < words; i++) {
    if (i) kb_put(json, ", ");
    kb_put_codes(json, rows->text.data + rows->starts.data[i], (size_t)(rows->ends.data[i] - rows->starts.data[i]));
  }
  kb_put(json, "], \"labels\": [");
  for (i = 0; i < words; i++) {
    if (i) kb_put(json, ", ");
    kb_put_string(json, numbers[i] >= 0 ? rows->model->labels[numbers[i]] : outside);
  }
  kb_put(json, "], \"starts\": [");
  for (i = 0; i < words; i++) {
    if (i) kb_put(json, ", ");
    kb_put_number(json, rows->starts.data[i]);
  }
  kb_put(json, "], \"ends\": [");
  for (i = 0; i < words; i++) {
    if (i) kb_put(json, ", ");
    kb_put_number(json, rows->ends.data[i]);
  }
  kb_put(json, "], \"scores\": [");
  for (i = 0; i < words; i++) {
    if (i) kb_put(json, ", ");
    kb_put_number(json, (double)scores[i]);
    kb_tell_span(&rows->told.spans, numbers[i] >= 0 ? rows->model->labels + numbers[i] : &outside, (size_t)rows->starts.data[i],
                 (size_t)rows->ends.data[i], (double)scores[i]);
  }
  kb_put(json, "], \"entities\": [");
  put_entities(rows, numbers, scores);
  kb_put(json, "]}");
}

/* What the windows say of the words that have a token, in the order of the words, as `values` [known, l]. */
static void gather(const kb_rows *rows, const float *const *outputs, const int32_t *order, double *values) {
  size_t i, k, w, l = rows->model->label_count;
  for (i = 0; i < rows->count; i++)
    for (k = rows->rows[i].own_begin; k < rows->rows[i].own_end; k++) {
      const float *from = outputs[i] + (size_t)rows->tokens.data[k] * l;
      double *to = values + (size_t)order[rows->words.data[k]] * l;
      for (w = 0; w < l; w++) to[w] = (double)from[w];
    }
}

kb_status kb_tags_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  const kb_model *m = rows->model;
  size_t i, k, words = rows->starts.count, known = rows->words.count, l = m->label_count, at;
  int32_t *numbers = malloc((3 * words + 1) * sizeof *numbers), *order = numbers + words, *labels = order + words;
  float *scores = calloc(2 * words + 1, sizeof *scores), *best = scores + words;
  double *values = malloc((known * l + 1) * sizeof *values);
  int good = numbers != NULL && scores != NULL && values != NULL;
  (void)sizes;
  for (i = 0; good && i < words; i++) numbers[i] = -1;
  for (i = 0; good && i < known; i++) numbers[rows->words.data[i]] = 0;
  for (i = 0, at = 0; good && i < words; i++)
    if (numbers[i] == 0) order[i] = (int32_t)at++;
  if (good) gather(rows, outputs, order, values);
  if (good && known > 0 && m->crf) good = crf(values, m->table, known, l, labels, best);
  for (i = 0; good && !m->crf && i < known; i++) {
    labels[i] = 0;
    for (k = 1; k < l; k++)
      if (values[i * l + k] > values[i * l + (size_t)labels[i]]) labels[i] = (int32_t)k;
    best[i] = (float)values[i * l + (size_t)labels[i]];
  }
  for (i = 0; good && i < words; i++)
    if (numbers[i] == 0) scores[i] = best[order[i]], numbers[i] = labels[order[i]];
  if (good) put_answer(rows, numbers, scores);
  free(numbers);
  free(scores);
  free(values);
  return good ? KB_OK : kb_no_memory(message);
}
