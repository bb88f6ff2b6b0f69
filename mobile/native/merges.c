/* The merges of BPE: what merges.txt says, and merging. */
#include <stdlib.h>

#include "internal.h"

#define METASPACE "\xE2\x96\x81" /* U+2581, a blank of SentencePiece's pieces */

enum { SHORT = 24 };

/* The rank of a pair and what it becomes; NULL of one that is not merged. */
static const kb_pair *find(const kb_tokenizer *t, int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, mixed = key * 0x9e3779b97f4a7c15u;
  size_t at = (size_t)(mixed >> 32) & (t->merges_room - 1);
  while (t->merges[at].rank >= 0) {
    if (t->merges[at].key == key) return t->merges + at;
    at = (at + 1) & (t->merges_room - 1);
  }
  return NULL;
}

static void insert(kb_tokenizer *t, int32_t left, int32_t right, int32_t rank, int32_t merged) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, mixed = key * 0x9e3779b97f4a7c15u;
  size_t at = (size_t)(mixed >> 32) & (t->merges_room - 1);
  while (t->merges[at].rank >= 0) {
    if (t->merges[at].key == key) return; /* the first rank counts */
    at = (at + 1) & (t->merges_room - 1);
  }
  t->merges[at].key = key, t->merges[at].rank = rank, t->merges[at].merged = merged;
}

/* The piece that a line names, by its number where a piece may be the end of a line. */
static int32_t part(const kb_tokenizer *t, kb_text name) {
  size_t i, id = 0;
  if (!t->metaspace) return kb_map_find(&t->ids, name);
  if (name.size == 0 || name.size > 8) return -1;
  for (i = 0; i < name.size; i++) {
    if (name.data[i] < '0' || name.data[i] > '9') return -1;
    id = id * 10 + (size_t)(name.data[i] - '0');
  }
  return id < t->size ? (int32_t)id : -1;
}

/* Whether a piece goes over the beginning of a word: a blank behind another character. */
static int goes_over(kb_text piece) {
  size_t i, blank = 1;
  for (i = 0; i < piece.size; i++) {
    int here = i + 3 <= piece.size && memcmp(piece.data + i, METASPACE, 3) == 0;
    if (here && !blank) return 1;
    blank = (size_t)here;
    if (here) i += 2;
  }
  return 0;
}

/* One line of merges.txt. */
static kb_status merge(kb_tokenizer *t, kb_text line, int32_t rank, kb_bytes *whole, kb_message *message) {
  const char *blank = memchr(line.data, ' ', line.size);
  kb_text left = {line.data, 0}, right, both;
  int32_t ids[3];
  size_t i;
  if (blank == NULL || memchr(blank + 1, ' ', line.size - (size_t)(blank + 1 - line.data)) != NULL)
    return kb_fail(message, KB_DAMAGED, "merge '%s', expected two pieces with a blank between them", kb_show(line).text);
  left.size = (size_t)(blank - line.data);
  right.data = blank + 1, right.size = line.size - left.size - 1;
  whole->count = 0;
  ids[0] = part(t, left), ids[1] = part(t, right), ids[2] = -1;
  for (i = 0; i < 2 && ids[i] >= 0; i++) kb_push_bytes(whole, t->pieces[ids[i]].data, t->pieces[ids[i]].size);
  if (whole->failed) return kb_no_memory(message);
  both.data = (const char *)whole->data, both.size = whole->count;
  if (ids[0] >= 0 && ids[1] >= 0) ids[2] = kb_map_find(&t->ids, both);
  if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
    return kb_fail(message, KB_DAMAGED, "merge %ld (%s) needs a piece that the vocabulary has not", (long)rank + 1,
                   kb_show(line).text);
  if (t->metaspace && goes_over(both)) t->whole_texts = 1;
  insert(t, ids[0], ids[1], rank, ids[2]);
  return KB_OK;
}

/* Reads merges.txt: one a line, a first line that begins with #version is none. */
kb_status kb_merges_open(kb_tokenizer *t, kb_text text, kb_message *message) {
  kb_bytes whole;
  kb_status status = KB_OK;
  size_t at = 0, lines = 1, i;
  int32_t rank = 0;
  memset(&whole, 0, sizeof whole);
  for (i = 0; i < text.size; i++) lines += text.data[i] == '\n';
  if (lines > KB_MOST_PIECES) return kb_fail(message, KB_DAMAGED, "%lu merges are too many", (unsigned long)lines);
  for (t->merges_room = 16; t->merges_room < lines * 2;) t->merges_room *= 2;
  t->merges = malloc(t->merges_room * sizeof *t->merges);
  if (t->merges == NULL) return kb_no_memory(message);
  for (i = 0; i < t->merges_room; i++) t->merges[i].rank = -1;
  while (at <= text.size && status == KB_OK) {
    const char *end = at < text.size ? memchr(text.data + at, '\n', text.size - at) : NULL;
    kb_text line = {text.data + at, end == NULL ? text.size - at : (size_t)(end - text.data) - at};
    size_t first = at;
    at += line.size + 1;
    while (line.size > 0 && line.data[line.size - 1] == '\r') line.size--;
    if (line.size == 0 || (first == 0 && line.size >= 8 && memcmp(line.data, "#version", 8) == 0)) continue;
    status = merge(t, line, rank++, &whole, message);
  }
  free(whole.data);
  return status;
}

/* ---- merging ---- */

/* Merges n symbols, the lowest rank first, the leftmost of equal ones, by looking at all pairs -> how many are left. */
static size_t merge_short(const kb_tokenizer *t, int32_t *symbols, size_t n) {
  const kb_pair *pairs[SHORT];
  size_t i;
  for (i = 0; i + 1 < n; i++) pairs[i] = find(t, symbols[i], symbols[i + 1]);
  for (;;) {
    size_t best = n;
    for (i = 0; i + 1 < n; i++)
      if (pairs[i] != NULL && (best == n || pairs[i]->rank < pairs[best]->rank)) best = i;
    if (best == n) return n;
    symbols[best] = pairs[best]->merged;
    n--;
    for (i = best + 1; i < n; i++) symbols[i] = symbols[i + 1], pairs[i - 1] = pairs[i];
    if (best > 0) pairs[best - 1] = find(t, symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = find(t, symbols[best], symbols[best + 1]);
  }
}

/* A pair that may be merged, in a heap; and the symbols as a list. */
typedef struct waiting { int32_t rank, left, right; uint32_t at; const kb_pair *pair; } waiting;
typedef struct merger { const kb_tokenizer *t; int32_t *symbols; int32_t *before, *after; waiting *heap; size_t heap_count; } merger;

static int earlier(const waiting *a, const waiting *b) { return a->rank < b->rank || (a->rank == b->rank && a->at < b->at); }

static void consider(merger *m, int32_t i, int32_t j) {
  const kb_pair *pair = find(m->t, m->symbols[i], m->symbols[j]);
  waiting made;
  size_t at = m->heap_count;
  if (pair == NULL) return;
  made.rank = pair->rank, made.left = m->symbols[i], made.right = m->symbols[j], made.at = (uint32_t)i, made.pair = pair;
  m->heap_count++;
  for (; at > 0 && earlier(&made, m->heap + (at - 1) / 2); at = (at - 1) / 2) m->heap[at] = m->heap[(at - 1) / 2];
  m->heap[at] = made;
}

static waiting pop(merger *m) {
  waiting top = m->heap[0], last = m->heap[--m->heap_count];
  size_t at = 0, child;
  while ((child = 2 * at + 1) < m->heap_count) {
    if (child + 1 < m->heap_count && earlier(m->heap + child + 1, m->heap + child)) child++;
    if (!earlier(m->heap + child, &last)) break;
    m->heap[at] = m->heap[child];
    at = child;
  }
  m->heap[at] = last;
  return top;
}

/* The same for any number, with a heap; 0: no memory. */
static size_t merge_long(const kb_tokenizer *t, kb_work *w, int32_t *symbols, size_t n) {
  merger m;
  size_t i, left = 0, count = (size_t)n;
  /* each merge adds at most two pairs */
  size_t heap_bytes = 3 * count * sizeof(waiting), list_bytes = 2 * count * sizeof(int32_t);
  if (!kb_reserve(&w->heap, &w->heap_room, heap_bytes + list_bytes, 1)) return 0;
  m.t = t, m.symbols = symbols, m.heap = w->heap, m.heap_count = 0;
  m.before = (int32_t *)((char *)w->heap + heap_bytes), m.after = m.before + count;
  for (i = 0; i < count; i++) m.before[i] = (int32_t)i - 1, m.after[i] = (int32_t)i + 1;
  for (i = 0; i + 1 < count; i++) consider(&m, (int32_t)i, (int32_t)i + 1);
  while (m.heap_count > 0) {
    waiting top = pop(&m);
    int32_t a = (int32_t)top.at, b = m.after[a];
    if (symbols[a] != top.left || b == (int32_t)count || symbols[b] != top.right) continue; /* merged meanwhile */
    symbols[a] = top.pair->merged, symbols[b] = -1;
    m.after[a] = m.after[b];
    if (m.after[a] < (int32_t)count) {
      m.before[m.after[a]] = a;
      consider(&m, a, m.after[a]);
    }
    if (m.before[a] >= 0) consider(&m, m.before[a], a);
  }
  for (i = 0; i < count; i++)
    if (symbols[i] >= 0) symbols[left++] = symbols[i];
  return left;
}

size_t kb_merge(const kb_tokenizer *t, kb_work *w, int32_t *symbols, size_t n) {
  return n <= SHORT ? merge_short(t, symbols, n) : merge_long(t, w, symbols, n);
}
