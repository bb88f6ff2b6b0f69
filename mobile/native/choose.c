/* Which token comes next: penalties, bans, draws. The rules are answers/beam_search.py's, in float32 as there. */
#include <math.h>
#include <stdlib.h>

#include "generate.h"

#define FEW 1024 /* tokens, of which p is reached as a rule */
#define NEVER (-(float)INFINITY)

size_t kb_most(const float *x, size_t size) {
  size_t i, best = 0;
  for (i = 1; i < size; i++)
    if (x[i] > x[best]) best = i;
  return best;
}

/* ---- what may come ---- */

/* Tokens that stand there already: their logits are divided by the penalty, those below 0 multiplied. */
static void penalize(float penalty, float *x, size_t width, const kb_ints *seen, uint8_t *marks) {
  size_t i;
  for (i = 0; i < seen->count; i++) {
    size_t id = (size_t)seen->data[i];
    if (seen->data[i] < 0 || id >= width || marks[id]) continue;
    marks[id] = 1;
    x[id] = x[id] < 0 ? x[id] * penalty : x[id] / penalty;
  }
  for (i = 0; i < seen->count; i++)
    if (seen->data[i] >= 0 && (size_t)seen->data[i] < width) marks[seen->data[i]] = 0;
}

static void ban(float *x, size_t width, int32_t id) {
  if (id >= 0 && (size_t)id < width) x[id] = NEVER;
}

/* No `size` tokens in a row occur twice. */
static void ban_repeated(float *x, size_t width, const kb_ints *seen, size_t size) {
  size_t i, last = seen->count + 1 - size;
  if (seen->count + 1 < size) return;
  for (i = 0; i + size <= seen->count; i++)
    if (memcmp(seen->data + i, seen->data + last, (size - 1) * sizeof *seen->data) == 0) ban(x, width, seen->data[i + size - 1]);
}

/* Words of one token are banned alone, but the end; of longer ones the last token, where the others stand. */
static void ban_words(float *x, size_t width, const kb_ints *words, const kb_ints *seen, int32_t end) {
  size_t i, size;
  for (i = 0; i < words->count; i += size + 1) {
    const int32_t *word = words->data + i + 1;
    size = (size_t)words->data[i];
    if (size == 1 ? word[0] == end : size > seen->count) continue;
    if (memcmp(word, seen->data + seen->count - (size - 1), (size - 1) * sizeof *word) == 0) ban(x, width, word[size - 1]);
  }
}

void kb_adjust(const kb_decoding *how, float *x, size_t width, const kb_ints *seen, size_t step, int32_t end, uint8_t *marks) {
  long forced = step == 0 && how->forced_bos >= 0 ? how->forced_bos : step + 1 == kb_most_tokens(how) ? how->forced_eos : -1;
  size_t i;
  if (forced >= 0) {
    for (i = 0; i < width; i++) x[i] = NEVER;
    x[forced] = 0;
    return;
  }
  if ((float)how->repetition != 1) penalize((float)how->repetition, x, width, seen, marks);
  if (step < (size_t)how->min_new_tokens) ban(x, width, end);
  for (i = 0; i < how->suppress.count; i++) ban(x, width, how->suppress.data[i]);
  if (step == (size_t)(how->forced_bos >= 0))
    for (i = 0; i < how->begin_suppress.count; i++) ban(x, width, how->begin_suppress.data[i]);
  if (how->no_repeat > 0) ban_repeated(x, width, seen, (size_t)how->no_repeat);
  ban_words(x, width, &how->words, seen, end);
}

/* ---- the largest ---- */

static int best_first(const void *a, const void *b) {
  const kb_scored *one = a, *other = b;
  if (one->x != other->x) return one->x > other->x ? -1 : 1;
  return one->at < other->at ? -1 : one->at > other->at;
}

/* The number that `count` of x reach, by quickselect, which reorders them. */
static float reached(float *x, size_t size, size_t count) {
  size_t low = 0, high = size - 1, wanted = count - 1;
  while (low < high) {
    float pivot = x[low + (high - low) / 2], kept;
    size_t i = low, k = high; /* before x[i] all are at least the pivot, behind x[k] at most */
    for (;; i++, k--) {
      while (x[i] > pivot) i++;
      while (x[k] < pivot) k--;
      if (i >= k) break;
      kept = x[i], x[i] = x[k], x[k] = kept;
    }
    if (wanted <= k) high = k;
    else low = k + 1;
  }
  return x[wanted];
}

static int least_of(const float *x, size_t size, size_t count, kb_sorting *room, float *least) {
  if (!kb_reserve((void **)&room->copy, &room->copy_room, size, sizeof *room->copy)) return 0;
  memcpy(room->copy, x, size * sizeof *x);
  *least = reached(room->copy, size, count);
  return 1;
}

int kb_largest(const float *x, size_t size, size_t count, kb_sorting *room) {
  float least;
  size_t i, found = 0;
  if (!least_of(x, size, count, room, &least)) return 0;
  for (i = 0; i < size; i++) found += x[i] >= least;
  if (!kb_reserve((void **)&room->best, &room->best_room, found + count, sizeof *room->best)) return 0;
  for (i = found = 0; i < size; i++)
    if (x[i] >= least) room->best[found].x = x[i], room->best[found++].at = (uint32_t)i;
  for (; found < count; found++) room->best[found].x = NEVER, room->best[found].at = 0; /* of numbers that are none */
  qsort(room->best, found, sizeof *room->best, best_first);
  return 1;
}

/* ---- draws ---- */

/* layers.random: a key of some words, and 32 bits of an element. */
static uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

static void key_word(uint32_t key[2], uint32_t part) {
  key[0] = mixed((key[0] ^ part) + 0x9E3779B9u);
  key[1] = mixed((key[1] + part) ^ key[0]);
}

static void key_of(uint64_t seed, uint64_t row, uint64_t step, uint32_t key[2]) {
  uint64_t words[3];
  int i;
  words[0] = seed, words[1] = row, words[2] = step;
  key[0] = 0x9E3779B9u, key[1] = 0x243F6A88u;
  for (i = 0; i < 3; i++) {
    key_word(key, (uint32_t)words[i]);
    if (words[i] >> 32) key_word(key, (uint32_t)(words[i] >> 32));
  }
}

static uint32_t bits(const uint32_t key[2], uint32_t element) {
  uint32_t x = element * 0x9E3779B9u + key[0];
  x = (x ^ x >> 16) * 0x7FEB352Du + key[1];
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

/* The smallest logit that may be drawn. */
static int least_drawn(const kb_decoding *how, const float *x, size_t width, kb_sorting *room, float *least) {
  size_t count = how->top_k > 0 && (size_t)how->top_k < width ? (size_t)how->top_k : width, some, i;
  double whole = 0;
  float total, passed = 0, largest = x[kb_most(x, width)];
  if (how->top_p == 0 || how->top_p == 1) return least_of(x, width, count, room, least);
  if (count < width) {
    if (!kb_largest(x, width, count, room)) return 0;
    for (i = 0; i < count; i++) whole += (double)expf(room->best[i].x - largest);
  } else {
    for (i = 0; i < width; i++) whole += (double)expf(x[i] - largest);
  }
  total = (float)whole;
  for (some = count < FEW ? count : FEW;; some = count) { /* sorting all of a large vocabulary takes longer than a step */
    if (!kb_largest(x, width, some, room)) return 0;
    *least = room->best[0].x, passed = 0;
    for (i = 0; i < some; i++) {
      float each = expf(room->best[i].x - largest) / total, before;
      passed += each;
      before = passed - each;
      if (!(before < (float)how->top_p)) return 1;
      *least = room->best[i].x;
    }
    if (some == count) return 1;
  }
}

int kb_draw(const kb_decoding *how, float *x, size_t width, size_t row, size_t step, kb_sorting *room, size_t *token) {
  float least, best = 0;
  uint32_t key[2];
  size_t i;
  int any = 0;
  for (i = 0; i < width && how->temperature > 0; i++) x[i] /= (float)how->temperature;
  if (!least_drawn(how, x, width, room, &least)) return 0;
  key_of((uint64_t)how->seed, row, step, key);
  for (i = 0; i < width; i++) {
    float uniform, value;
    if (!(x[i] >= least)) continue;
    uniform = ((float)(bits(key, (uint32_t)i) >> 1) + 0.5f) * 4.656612873077393e-10f; /* 2^-31 */
    value = x[i] - logf(-log1pf(-uniform));
    if (!any || value > best) best = value, *token = i, any = 1;
  }
  return 1;
}
