/* WordPiece: BERT's normalisation and words, and the longest pieces of a word. The rules are text/normalize.py's. */
#include <stdlib.h>

#include "internal.h"

enum { MOST = 18 }; /* code points that one becomes: 6 of a decomposition, each with blanks around it */

kb_status kb_wordpiece_open(kb_tokenizer *t, kb_message *message) {
  kb_word *words = malloc((t->size + 1) * sizeof *words);
  size_t i, count = 0;
  uint32_t code;
  kb_status status;
  if (words == NULL) return kb_no_memory(message);
  for (i = 0; i < t->size; i++) {
    if (t->pieces[i].size == 0 || t->absent[i]) continue;
    words[count].text = t->pieces[i];
    words[count++].value = (int32_t)i;
  }
  status = kb_trie_open(&t->trie, words, count, message);
  free(words);
  if (status != KB_OK) return status;
  t->inside = kb_step(&t->trie, KB_ROOT, '#');
  if (t->inside != KB_NOWHERE) t->inside = kb_step(&t->trie, t->inside, '#');
  for (code = 0; code < 128; code++) {
    uint32_t flags = kb_flags(code), low = t->lowercase && code >= 'A' && code <= 'Z' ? code + 32 : code;
    t->ascii[code] = (uint16_t)(flags & KB_F_DROP ? 0 : flags & KB_F_SPACE ? ' ' : flags & KB_F_PUNCTUATION ? 256 + low : low);
  }
  return KB_OK;
}

/* What becomes of a code point -> how many code points: none, a blank, letters, or any of them with blanks around it. */
static size_t normal(const kb_tokenizer *t, uint32_t code, uint32_t *out) {
  uint32_t flags = kb_flags(code), parts[6];
  size_t i, size = 1, count = 0;
  int ideograph;
  if (flags & KB_F_DROP) return 0;
  if (flags & KB_F_SPACE) return out[0] = ' ', 1;
  parts[0] = code;
  if (t->strip_accents && code >= 128) {
    if (flags & KB_F_MARK) return 0;
    size = kb_strip(code, parts);
  }
  if (t->lowercase) {
    if (size == 1 && parts[0] == 0x130) parts[0] = 'i', parts[1] = 0x307, size = 2; /* the one that becomes two */
    else for (i = 0; i < size; i++) parts[i] = kb_lower(parts[i]);
  }
  ideograph = t->split_cjk && code >= 128 && flags & KB_F_CJK;
  if (ideograph) out[count++] = ' ';
  for (i = 0; i < size; i++) {
    int alone = !ideograph && kb_flags(parts[i]) & KB_F_PUNCTUATION;
    if (alone) out[count++] = ' ';
    out[count++] = parts[i];
    if (alone) out[count++] = ' ';
  }
  if (ideograph) out[count++] = ' ';
  return count;
}

/* Pushes the pieces of work->word (UTF-8, a source for each byte) and empties it. */
static void pieces(const kb_tokenizer *t, kb_work *w, int offsets) {
  const uint8_t *s = w->word.data;
  const int32_t *from = w->sources.data;
  size_t size = w->word.count, begin = 0, i, characters = 0, ids = w->ids.count, places = w->starts.count;
  uint32_t start = KB_ROOT;
  w->word.count = w->sources.count = 0;
  if (size == 0 || w->word.failed || w->sources.failed) return;
  if (size > t->max_word_chars) {
    for (i = 0; i < size; i++) characters += (s[i] & 0xC0) != 0x80;
    if (characters > t->max_word_chars) goto unknown;
  }
  while (begin < size) {
    uint32_t node = start;
    int32_t found = -1;
    size_t end = begin;
    if (start == KB_NOWHERE) goto unknown;
    for (i = begin; i < size; i++) {
      node = kb_step(&t->trie, node, s[i]);
      if (node == KB_NOWHERE) break;
      if (t->trie.nodes[node].value >= 0) found = t->trie.nodes[node].value, end = i + 1;
    }
    if (found < 0) goto unknown;
    kb_push_int(&w->ids, found);
    if (offsets) {
      kb_push_int(&w->starts, from[begin]);
      kb_push_int(&w->ends, from[end - 1] + 1);
    }
    begin = end, start = t->inside;
  }
  return;
unknown:
  w->ids.count = ids;
  w->starts.count = w->ends.count = places;
  kb_push_int(&w->ids, t->parts[KB_UNK]);
  if (offsets) {
    kb_push_int(&w->starts, from[0]);
    kb_push_int(&w->ends, from[size - 1] + 1);
  }
}

/* A code point of the word; a source for each of its bytes. */
static void put(kb_work *w, uint32_t code, size_t source) {
  uint8_t bytes[4];
  size_t i, size = kb_utf8(code, bytes);
  for (i = 0; i < size; i++) {
    kb_push_byte(&w->word, bytes[i]);
    kb_push_int(&w->sources, (int32_t)source);
  }
}

/* One normalised character: a blank ends the word. */
static void take(const kb_tokenizer *t, kb_work *w, uint32_t code, size_t source, int offsets) {
  if (code == ' ') pieces(t, w, offsets);
  else put(w, code, source);
}

/* An item of a text whose combining characters are to be sorted. */
typedef struct item { size_t run; uint32_t order, source; uint16_t class_, count; uint32_t codes[MOST]; int takes; } item;

static int compare(const void *left, const void *right) {
  const item *a = left, *b = right;
  if (a->run != b->run) return a->run < b->run ? -1 : 1;
  if (a->class_ != b->class_) return a->class_ < b->class_ ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

/* The parts of codes[0 .. count): (source, n, code points) each, onto work->scratch. NFD's sorting of combining characters
   has Hugging Face's alignment: by position, not by character. 0: no memory. */
static int sorted_parts(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count) {
  kb_ints taken;
  item *items = NULL;
  size_t room = 0, made = 0, run = 0, i, k, seen = 0;
  memset(&taken, 0, sizeof taken);
  for (i = 0; i < count && !taken.failed; i++) {
    uint32_t out[MOST];
    size_t size = normal(t, codes[i], out), parts;
    int whole;
    if (size == 0 && !(kb_flags(codes[i]) & KB_F_MARK)) continue;
    kb_push_int(&taken, (int32_t)i);
    whole = size == 0 || out[0] == ' '; /* a mark to be dropped, a blank or a word of its own: one item */
    parts = whole ? 1 : size;
    if (!kb_reserve((void **)&items, &room, made + parts, sizeof *items)) taken.failed = 1;
    for (k = 0; k < parts && !taken.failed; k++) {
      item *each = items + made;
      each->count = (uint16_t)(whole ? size : 1);
      memcpy(each->codes, out + k, each->count * sizeof *out);
      each->class_ = (uint16_t)kb_class(each->count == 1 ? out[k] : codes[i]);
      run += each->class_ == 0;
      each->run = run, each->order = (uint32_t)made++, each->takes = k == 0;
    }
  }
  if (made > 0 && !taken.failed) qsort(items, made, sizeof *items, compare);
  for (i = 0; i < made && !taken.failed; i++) {
    seen += (size_t)items[i].takes;
    kb_push_code(&w->scratch, (uint32_t)taken.data[seen > 0 ? seen - 1 : taken.count - 1]);
    kb_push_code(&w->scratch, items[i].count);
    for (k = 0; k < items[i].count; k++) kb_push_code(&w->scratch, items[i].codes[k]);
  }
  free(items);
  free(taken.data);
  return !taken.failed;
}

/* Whether NFD may move a character that is then still there. */
static int has_movable(const kb_tokenizer *t, const uint32_t *codes, size_t count) {
  size_t i;
  if (!t->strip_accents) return 0;
  for (i = 0; i < count; i++)
    if (codes[i] >= 128 && kb_flags(codes[i]) & KB_F_MOVABLE) return 1;
  return 0;
}

/* kb_plain. */
kb_status kb_wordpiece_plain(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int first, int offsets,
                             kb_message *message) {
  size_t i, k;
  (void)first;
  w->word.count = w->sources.count = 0;
  if (has_movable(t, codes, count)) {
    w->scratch.count = 0;
    if (!sorted_parts(t, w, codes, count) || w->scratch.failed) return kb_no_memory(message);
    for (i = 0; i < w->scratch.count; i += 2 + w->scratch.data[i + 1])
      for (k = 0; k < w->scratch.data[i + 1]; k++) take(t, w, w->scratch.data[i + 2 + k], w->scratch.data[i], offsets);
    pieces(t, w, offsets);
    return KB_OK;
  }
  for (i = 0; i < count; i++) {
    if (codes[i] < 128) {
      unsigned kind = t->ascii[codes[i]];
      if (kind == 0) continue;
      if (kind == ' ') {
        pieces(t, w, offsets);
      } else if (kind < 256) {
        kb_push_byte(&w->word, (uint8_t)kind);
        kb_push_int(&w->sources, (int32_t)i);
      } else {
        pieces(t, w, offsets);
        put(w, kind - 256, i);
        pieces(t, w, offsets);
      }
    } else {
      uint32_t out[MOST];
      size_t size = normal(t, codes[i], out);
      for (k = 0; k < size; k++) take(t, w, out[k], i, offsets);
    }
  }
  pieces(t, w, offsets);
  return KB_OK;
}

/* A part of the form: with blanks around ideographs but not around punctuation. */
static void form_part(const kb_tokenizer *t, kb_work *w, const uint32_t *part, size_t size, size_t source) {
  size_t k, blanks = 0;
  int keep;
  for (k = 0; k < size; k++) blanks += part[k] == ' ';
  keep = blanks == 0 || size == 1 || (t->split_cjk && kb_flags(part[1]) & KB_F_CJK);
  for (k = 0; k < size; k++) {
    if (!keep && part[k] == ' ') continue;
    kb_push_code(&w->form, part[k]);
    kb_push_int(&w->form_starts, (int32_t)source);
    kb_push_int(&w->form_ends, (int32_t)source + 1);
  }
}

/* The text as BertNormalizer leaves it -> work->form. */
kb_status kb_wordpiece_form(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, kb_message *message) {
  size_t i;
  if (has_movable(t, codes, count)) {
    w->scratch.count = 0;
    if (!sorted_parts(t, w, codes, count) || w->scratch.failed) return kb_no_memory(message);
    for (i = 0; i < w->scratch.count; i += 2 + w->scratch.data[i + 1])
      form_part(t, w, w->scratch.data + i + 2, w->scratch.data[i + 1], w->scratch.data[i]);
    return KB_OK;
  }
  for (i = 0; i < count; i++) {
    uint32_t out[MOST];
    form_part(t, w, out, normal(t, codes[i], out), i);
  }
  return KB_OK;
}

/* kb_plain of a normalised text: words at blanks, punctuation apart. */
kb_status kb_wordpiece_formed(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int first, int offsets,
                              kb_message *message) {
  size_t i;
  (void)first, (void)message;
  w->word.count = w->sources.count = 0;
  for (i = 0; i < count; i++) {
    int alone = (kb_flags(codes[i]) & KB_F_PUNCTUATION) != 0;
    if (alone || codes[i] == ' ') pieces(t, w, offsets);
    if (codes[i] == ' ') continue;
    put(w, codes[i], i);
    if (alone) pieces(t, w, offsets);
  }
  pieces(t, w, offsets);
  return KB_OK;
}
