/* Byte-level BPE (GPT-2, RoBERTa). The rules are text/bpe.py's. */
#include <stdlib.h>

#include "internal.h"

enum { SHORT = 24, CACHED = 28, SLOTS = 4096 };

/* A word of the cache, and its tokens: whole words come again and again. */
struct kb_slot { uint8_t size, count; uint8_t word[CACHED]; int32_t ids[8]; };

void kb_byte_alphabet(uint32_t alphabet[256]) {
  uint32_t byte, other = 0x100;
  for (byte = 0; byte < 256; byte++) {
    int visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    alphabet[byte] = visible ? byte : other++;
  }
}

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

/* One line of merges.txt. */
static kb_status merge(kb_tokenizer *t, kb_text line, int32_t rank, kb_bytes *whole, kb_message *message) {
  const char *blank = memchr(line.data, ' ', line.size);
  kb_text left = {line.data, 0}, right, both;
  int32_t ids[3];
  if (blank == NULL || memchr(blank + 1, ' ', line.size - (size_t)(blank + 1 - line.data)) != NULL)
    return kb_fail(message, KB_DAMAGED, "merge '%s', expected two pieces with a blank between them", kb_show(line).text);
  left.size = (size_t)(blank - line.data);
  right.data = blank + 1, right.size = line.size - left.size - 1;
  whole->count = 0;
  kb_push_bytes(whole, left.data, left.size);
  kb_push_bytes(whole, right.data, right.size);
  if (whole->failed) return kb_no_memory(message);
  both.data = (const char *)whole->data, both.size = whole->count;
  ids[0] = kb_map_find(&t->ids, left), ids[1] = kb_map_find(&t->ids, right), ids[2] = kb_map_find(&t->ids, both);
  if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
    return kb_fail(message, KB_DAMAGED, "merge %ld (%s) needs a piece that the vocabulary has not", (long)rank + 1,
                   kb_show(line).text);
  insert(t, ids[0], ids[1], rank, ids[2]);
  return KB_OK;
}

/* Reads merges.txt: one a line, a first line that begins with #version is none. */
static kb_status read_merges(kb_tokenizer *t, kb_text text, kb_message *message) {
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

kb_status kb_bpe_open(kb_tokenizer *t, kb_text merges, kb_message *message) {
  size_t i, k;
  kb_byte_alphabet(t->alphabet);
  for (i = 0; i < 256; i++) {
    uint8_t bytes[4];
    kb_text key = {(const char *)bytes, kb_utf8(t->alphabet[i], bytes)};
    t->bytes[i] = kb_map_find(&t->ids, key);
    if (t->bytes[i] < 0) return kb_fail(message, KB_DAMAGED, "the vocabulary has no piece for the byte 0x%02lx", (unsigned long)i);
  }
  t->lengths = calloc(t->size, sizeof *t->lengths);
  if (t->lengths == NULL) return kb_no_memory(message);
  for (i = 0; i < t->size; i++) {
    const kb_text p = t->pieces[i]; /* a blank is U+0120: C4 A0 */
    for (k = 0; k < p.size; k++) t->lengths[i].bytes += (p.data[k] & 0xC0) != 0x80;
    for (k = 0; k + 1 < p.size && memcmp(p.data + k, "\xC4\xA0", 2) == 0; k += 2) t->lengths[i].lead++;
    for (k = p.size; k > 1 && memcmp(p.data + k - 2, "\xC4\xA0", 2) == 0; k -= 2) t->lengths[i].tail++;
  }
  return read_merges(t, merges, message);
}

/* The class of a code point: KB_F_LETTER, KB_F_NUMBER, KB_F_BLANK or 0. */
static uint32_t class_of(uint32_t code) { return kb_flags(code) & (KB_F_LETTER | KB_F_NUMBER | KB_F_BLANK); }

static int ends_line(uint32_t code) { return code == '\n' || code == '\r'; }

static uint32_t small(uint32_t code) { return code >= 'A' && code <= 'Z' ? code + 32 : code == 0x17F ? 's' : code; }

/* How many characters behind an apostrophe belong to it: 's 't 'm 'd 're 've 'll; 0: none. */
static size_t contraction(uint32_t a, uint32_t b) {
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1;
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 2 : 0;
}

/* The end of the word of GPT-2's expression that begins at codes[at]. */
static size_t gpt2_end(const uint32_t *codes, size_t at, size_t count) {
  size_t i = at;
  uint32_t kind;
  if (codes[at] == '\'' && at + 1 < count) {
    size_t more = contraction(codes[at + 1], at + 2 < count ? codes[at + 2] : 0);
    if (more > 0) return at + 1 + more;
  }
  if (codes[i] == ' ' && i + 1 < count && !(kb_flags(codes[i + 1]) & KB_F_BLANK)) i++;
  kind = class_of(codes[i]);
  for (i++; i < count && class_of(codes[i]) == kind; i++) continue;
  if (kind == KB_F_BLANK && i < count && i - at > 1) i--; /* the last blank belongs to the next word */
  return i;
}

/* The same of tiktoken's, whose numbers have so many digits at most. */
static size_t tiktoken_end(const uint32_t *codes, size_t at, size_t count, size_t digits) {
  size_t i = at, line = 0;
  uint32_t kind = class_of(codes[at]), next = at + 1 < count ? class_of(codes[at + 1]) : KB_F_BLANK;
  if (codes[at] == '\'' && at + 1 < count) {
    size_t more = contraction(small(codes[at + 1]), at + 2 < count ? small(codes[at + 2]) : 0);
    if (more > 0) return at + 1 + more;
  }
  if (kind == KB_F_LETTER || (next == KB_F_LETTER && kind != KB_F_NUMBER && !ends_line(codes[at]))) {
    for (i++; i < count && class_of(codes[i]) == KB_F_LETTER; i++) continue;
    return i;
  }
  if (kind == KB_F_NUMBER) {
    while (i < count && i - at < digits && class_of(codes[i]) == KB_F_NUMBER) i++;
    return i;
  }
  if (kind == 0 || (codes[at] == ' ' && next == 0)) {
    for (i++; i < count && class_of(codes[i]) == 0; i++) continue;
    while (i < count && ends_line(codes[i])) i++;
    return i;
  }
  for (; i < count && class_of(codes[i]) == KB_F_BLANK; i++)
    if (ends_line(codes[i])) line = i + 1;
  if (line > 0) return line;
  return i < count && i - at > 1 ? i - 1 : i; /* the last blank belongs to the next word */
}

static size_t word_end(const kb_tokenizer *t, const uint32_t *codes, size_t at, size_t count) {
  return t->digits == 0 ? gpt2_end(codes, at, count) : tiktoken_end(codes, at, count, t->digits);
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

/* ---- words ---- */

/* The piece that is w->word; -1: none. */
static int32_t whole_word(const kb_tokenizer *t, kb_work *w) {
  size_t i;
  int32_t id;
  kb_text piece;
  w->text.count = 0;
  for (i = 0; i < w->word.count; i++) kb_push_utf8(&w->text, t->alphabet[w->word.data[i]]);
  if (w->text.failed) return -1;
  piece.data = (const char *)w->text.data, piece.size = w->text.count;
  id = kb_map_find(&t->ids, piece);
  return id >= 0 && !t->special[id] && !t->absent[id] ? id : -1;
}

/* Pushes the ids of w->word. */
static int word_ids(const kb_tokenizer *t, kb_work *w) {
  size_t i, n = w->word.count, begin = w->ids.count;
  struct kb_slot *slot = NULL;
  int32_t whole;
  if (n <= CACHED && w->slots != NULL) {
    uint64_t key = 0xcbf29ce484222325u;
    for (i = 0; i < n; i++) key = (key ^ w->word.data[i]) * 0x100000001b3u;
    slot = w->slots + ((size_t)(key ^ key >> 32) & (SLOTS - 1));
    if (slot->size == n && memcmp(slot->word, w->word.data, n) == 0) {
      if (!kb_ints_room(&w->ids, begin + slot->count)) return 0;
      for (i = 0; i < slot->count; i++) w->ids.data[begin + i] = slot->ids[i];
      w->ids.count = begin + slot->count;
      return 1;
    }
  }
  if (!kb_ints_room(&w->ids, begin + n)) return 0;
  for (i = 0; i < n; i++) w->ids.data[begin + i] = t->bytes[w->word.data[i]];
  if (t->ignore_merges && (whole = whole_word(t, w)) >= 0) w->ids.data[begin] = whole, n = 1;
  else n = n <= SHORT ? merge_short(t, w->ids.data + begin, n) : merge_long(t, w, w->ids.data + begin, n);
  if (n == 0) return 0;
  w->ids.count = begin + n;
  if (slot != NULL && n <= 8) {
    slot->size = (uint8_t)w->word.count, slot->count = (uint8_t)n;
    memcpy(slot->word, w->word.data, w->word.count);
    memcpy(slot->ids, w->ids.data + begin, n * sizeof(int32_t));
  }
  return 1;
}

/* Offsets of the ids from `from` on, of a word that begins at a character. work->sources: the character of each byte. */
static void word_offsets(const kb_tokenizer *t, kb_work *w, size_t from, int32_t base) {
  size_t i, begin = 0;
  for (i = from; i < w->ids.count; i++) {
    const kb_piece piece = t->lengths[w->ids.data[i]];
    size_t end = begin + (size_t)piece.bytes;
    int32_t first, last, start;
    if (end > w->sources.count) end = w->sources.count; /* never of a vocabulary that kb_bpe_open takes */
    if (begin >= end) return;
    first = w->sources.data[begin], last = w->sources.data[end - 1] + 1;
    start = first + piece.lead < last ? first + piece.lead : last;
    kb_push_int(&w->starts, base + start);
    kb_push_int(&w->ends, base + (last - piece.tail > start ? last - piece.tail : start));
    begin = end;
  }
}

/* Hugging Face's offsets of the first token where a blank may stand before the text. */
static void mend_first(const kb_tokenizer *t, kb_work *w, size_t ids, size_t places, int first, int prefixed) {
  const kb_piece piece = t->lengths[w->ids.data[ids]];
  int32_t *start = w->starts.data + places, *end = w->ends.data + places;
  if (piece.lead == 0) return;
  if (first && piece.lead == 1) {
    *start = 0;
    if (piece.bytes == 1) *end = 0;
  } else if (!first && prefixed) {
    if (*end < 1) *end = 1;
    *start = *start + 1 < *end ? *start + 1 : *end;
  }
}

/* kb_plain. */
kb_status kb_bpe_plain(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int first, int offsets,
                       kb_message *message) {
  size_t at, ids = w->ids.count, places = w->starts.count;
  int prefixed = t->add_prefix_space && count > 0 && codes[0] != ' ';
  if (w->slots == NULL) w->slots = calloc(SLOTS, sizeof *w->slots), w->stamp = t->stamp;
  if (w->stamp != t->stamp && w->slots != NULL) memset(w->slots, 0, SLOTS * sizeof *w->slots), w->stamp = t->stamp;
  if (prefixed) {
    if (!kb_codes_room(&w->scratch, count + 1)) return kb_no_memory(message);
    w->scratch.data[0] = ' ';
    memcpy(w->scratch.data + 1, codes, count * sizeof *codes);
    codes = w->scratch.data, count++;
  }
  for (at = 0; at < count;) {
    size_t end = word_end(t, codes, at, count), i, k, before = w->ids.count;
    w->word.count = w->sources.count = 0;
    for (i = at; i < end; i++) {
      size_t was = w->word.count;
      kb_push_utf8(&w->word, codes[i]);
      for (k = was; offsets && k < w->word.count; k++) kb_push_int(&w->sources, (int32_t)(i - at));
    }
    if (w->word.failed || w->sources.failed || !word_ids(t, w)) return kb_no_memory(message);
    if (offsets) word_offsets(t, w, before, (int32_t)at - prefixed);
    at = end;
  }
  if (offsets && t->add_prefix_space && w->ids.count > ids && w->starts.count > places)
    mend_first(t, w, ids, places, first, prefixed);
  return KB_OK;
}
