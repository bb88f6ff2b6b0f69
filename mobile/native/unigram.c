/* SentencePiece's unigram model: its normalisation and the best path. The rules are text/unigram.py's, which are
   sentencepiece's: scores are summed up in float32, candidates are compared before they are rounded. */
#include <stdlib.h>

#include "unigram.h"

/* Scores of what a path may take: normal and user-defined pieces, in a trie. */
static kb_status prepare(kb_tokenizer *t, kb_message *message) {
  struct kb_unigram *u = t->unigram;
  kb_word *words = malloc((t->size + 1) * sizeof *words), *user = malloc((t->size + 1) * sizeof *user);
  size_t i, count = 0, user_count = 0, bytes = 0;
  double lowest = 0, highest = 0;
  int any = 0;
  kb_status status = words == NULL || user == NULL ? kb_no_memory(message) : KB_OK;
  for (i = 0; i < 256; i++) t->bytes[i] = -1;
  for (i = 0; i < t->size; i++) {
    if (u->types[i] != NORMAL) continue;
    if (!any || u->scores[i] < lowest) lowest = u->scores[i];
    if (!any || u->scores[i] > highest) highest = u->scores[i];
    any = 1;
  }
  u->unknown = (double)(float)(lowest - 10.0), u->separable = 1;
  for (i = 0; i < t->size && status == KB_OK; i++) {
    kb_word word;
    word.text = t->pieces[i], word.value = (int32_t)i;
    if (u->types[i] == USER_DEFINED) {
      u->scores[i] = (double)(float)((double)t->pieces[i].size * highest) - 0.1;
      user[user_count++] = word;
    }
    if (u->types[i] == BYTE) t->bytes[kb_piece_byte(t->pieces[i])] = (int32_t)i;
    if (u->types[i] != NORMAL && u->types[i] != USER_DEFINED) continue;
    words[count++] = word;
    if (kb_word_length((const uint8_t *)word.text.data, word.text.size) < word.text.size) u->separable = 0;
  }
  for (i = 0; i < 256; i++) bytes += t->bytes[i] >= 0;
  if (status == KB_OK && u->byte_fallback && bytes < 256)
    status = kb_fail(message, KB_DAMAGED, "a model with byte fallback has %lu of the 256 byte pieces", (unsigned long)bytes);
  if (status == KB_OK) status = kb_trie_open(&t->trie, words, count, message);
  u->has_user = user_count > 0;
  if (u->has_user || highest > 0) u->separable = 0;
  if (status == KB_OK && u->has_user) status = kb_trie_open(&u->user, user, user_count, message);
  for (i = 0; i < user_count && status == KB_OK; i++) /* a user's piece is no character of its own */
    if ((uint8_t)user[i].text.data[0] < 128) u->plain[(uint8_t)user[i].text.data[0]] = PART;
  free(words);
  free(user);
  return status;
}

kb_status kb_unigram_open(kb_tokenizer *t, kb_message *message) {
  struct kb_unigram *u = t->unigram;
  size_t i, unknown = 0;
  /* no text gives a special token, so that nobody types one */
  for (i = 0; i < KB_PARTS; i++)
    if (t->parts[i] >= 0) u->types[t->parts[i]] = CONTROL;
  u->types[t->parts[KB_UNK]] = UNKNOWN;
  for (i = 0; i < t->size; i++) {
    if (t->absent[i]) u->types[i] = CONTROL;
    unknown += u->types[i] == UNKNOWN;
  }
  if (unknown != 1) return kb_fail(message, KB_DAMAGED, "the model has %lu unknown pieces, expected one", (unsigned long)unknown);
  for (i = 0; i < t->size; i++)
    if (u->types[i] == CONTROL && !t->is_added[i]) t->special[i] = 1;
  return prepare(t, message);
}

int kb_unigram_plain(const kb_tokenizer *t) {
  return t->unigram->dummy_prefix && t->unigram->remove_extra && t->unigram->escape && !t->unigram->has_user;
}

int kb_unigram_is_byte(const kb_tokenizer *t, int32_t id) { return t->unigram->types[id] == BYTE; }

void kb_unigram_close(kb_tokenizer *t) {
  struct kb_unigram *u = t->unigram;
  if (u == NULL) return;
  kb_trie_close(&u->user);
  free(u->scores);
  free(u->types);
  free(u->units);
  free(u->values);
  free(u);
}

/* ---- normalisation ---- */

/* The longest user-defined piece at codes[at] -> its code points, 0 without; its bytes onto `value`. */
static size_t user_piece(const kb_tokenizer *t, const uint32_t *codes, size_t at, size_t count, kb_text *value) {
  const kb_trie *trie = &t->unigram->user;
  uint32_t node = KB_ROOT;
  size_t i, k, read = 0;
  for (i = at; i < count; i++) {
    uint8_t bytes[4];
    size_t size = kb_utf8(codes[i], bytes);
    for (k = 0; k < size && node != KB_NOWHERE; k++) node = kb_step(trie, node, bytes[k]);
    if (node == KB_NOWHERE) break;
    if (trie->nodes[node].value >= 0) *value = t->pieces[trie->nodes[node].value], read = i + 1 - at;
  }
  return read;
}

/* What becomes of codes[at ..] -> code points read, and their result in `value` (in `one` where it is a character itself); 0: damaged. */
static size_t part_of(const kb_tokenizer *t, const uint32_t *codes, size_t at, size_t count, int mapped, uint8_t one[4], kb_text *value) {
  const struct kb_unigram *u = t->unigram;
  size_t read = 0;
  int found = 0;
  if (mapped && u->has_user) read = user_piece(t, codes, at, count, value);
  if (read > 0) return read;
  read = 1;
  if (mapped && u->root != NO_NODE) read = kb_map_longest(u, codes, at, count, value, &found);
  if (!found) value->size = kb_utf8(codes[at], one), value->data = (const char *)one;
  return read;
}

/* The bytes of a part, a source for each; blanks become U+2581. */
static void put(kb_work *w, kb_text part, int escape, size_t source, int offsets) {
  size_t i, was = w->word.count;
  for (i = 0; i < part.size; i++) {
    if (part.data[i] == ' ' && escape) kb_push_bytes(&w->word, "\xE2\x96\x81", 3);
    else kb_push_byte(&w->word, (uint8_t)part.data[i]);
  }
  for (i = was; offsets && i < w->word.count; i++) kb_push_int(&w->sources, (int32_t)source);
}

/* What the character map makes of codes[at]: itself, a blank, or what `part_of` tells. */
static int kind_of(const struct kb_unigram *u, const uint32_t *codes, size_t at, size_t count) {
  return codes[at] < 128 && (at + 1 == count || codes[at + 1] < 128) ? u->plain[codes[at]] : PART;
}

/* sentencepiece's Normalizer::Normalize -> w->word and, with offsets, w->sources and the end of what was read behind them.
   mapped: 0 of a text that went through the character map already. */
static kb_status normalize(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int mapped, int offsets, kb_message *message) {
  const struct kb_unigram *u = t->unigram;
  static const kb_text blank = {" ", 1};
  size_t at = 0, end;
  int previous = u->remove_extra, begun = 0;
  w->word.count = w->sources.count = 0;
  while (at < count) {
    uint8_t one[4];
    kb_text part;
    size_t read;
    if (begun) { /* most of English */
      size_t was = at;
      for (; at < count && kind_of(u, codes, at, count) == PLAIN; at++) {
        kb_push_byte(&w->word, (uint8_t)codes[at]);
        if (offsets) kb_push_int(&w->sources, (int32_t)at);
      }
      if (at > was) previous = 0;
      if (at == count) break;
      if (kind_of(u, codes, at, count) == BLANK) {
        if (!previous) put(w, blank, u->escape, at, offsets);
        at++, previous = u->remove_extra;
        continue;
      }
    }
    read = part_of(t, codes, at, count, mapped, one, &part);
    if (read == 0) return kb_fail(message, KB_DAMAGED, "the character map of the SentencePiece model is cut off or changed");
    if (!begun) {
      if (u->remove_extra && part.size == 1 && part.data[0] == ' ') {
        at += read;
        continue;
      }
      begun = 1;
      if (u->dummy_prefix) put(w, blank, u->escape, at, offsets);
    }
    if (previous)
      while (part.size > 0 && part.data[0] == ' ') part.data++, part.size--;
    if (part.size > 0) {
      previous = part.data[part.size - 1] == ' ';
      put(w, part, u->escape, at, offsets);
    }
    at += read;
    if (!u->remove_extra) previous = 0;
  }
  end = w->word.count;
  if (u->remove_extra) { /* blanks at the end */
    if (u->escape) while (end >= 3 && memcmp(w->word.data + end - 3, "\xE2\x96\x81", 3) == 0) end -= 3;
    else while (end >= 1 && w->word.data[end - 1] == ' ') end--;
    if (end < w->word.count && offsets) at = (size_t)w->sources.data[end];
  }
  w->word.count = end;
  if (offsets) {
    w->sources.count = w->sources.count < end ? w->sources.count : end;
    kb_push_int(&w->sources, (int32_t)at);
  }
  return w->word.failed || w->sources.failed ? kb_no_memory(message) : KB_OK;
}

/* ---- the best path ---- */

typedef struct cell { float best; int32_t id; uint32_t begin; } cell; /* id -2: not reached */

/* The best way to each place of w->word -> cells, by byte; NULL: no memory. */
static cell *best_path(const kb_tokenizer *t, kb_work *w) {
  const struct kb_unigram *u = t->unigram;
  const kb_node *nodes = t->trie.nodes;
  const uint8_t *s = w->word.data;
  size_t n = w->word.count, begin, i;
  cell *cells;
  if (!kb_reserve(&w->lattice, &w->lattice_room, n + 1, sizeof(cell))) return NULL;
  cells = w->lattice;
  for (i = 0; i <= n; i++) cells[i].id = -2;
  cells[0].best = 0, cells[0].id = -1;
  for (begin = 0; begin < n; begin += kb_width(s[begin])) {
    double here = (double)cells[begin].best;
    size_t one = begin + kb_width(s[begin]);
    uint32_t node = KB_ROOT;
    int single = 0;
    for (i = begin; i < n; i++) {
      double candidate;
      node = kb_step(&t->trie, node, s[i]);
      if (node == KB_NOWHERE) break;
      if (nodes[node].value < 0) continue;
      single |= i + 1 == one;
      candidate = u->scores[nodes[node].value] + here;
      if (cells[i + 1].id == -2 || candidate > (double)cells[i + 1].best)
        cells[i + 1].best = (float)candidate, cells[i + 1].begin = (uint32_t)begin, cells[i + 1].id = nodes[node].value;
    }
    if (!single) {
      double candidate = u->unknown + here;
      if (cells[one].id == -2 || candidate > (double)cells[one].best)
        cells[one].best = (float)candidate, cells[one].begin = (uint32_t)begin, cells[one].id = t->parts[KB_UNK];
    }
  }
  return cells;
}

/* A piece from byte `begin` to `end` of w->word. */
static void emit(const kb_tokenizer *t, kb_work *w, int32_t id, size_t begin, size_t end, int *previous, int offsets) {
  int unknown = id == t->parts[KB_UNK];
  size_t i;
  if (unknown && t->unigram->byte_fallback) {
    for (i = begin; i < end; i++) {
      kb_push_int(&w->ids, t->bytes[w->word.data[i]]);
      if (!offsets) continue;
      kb_push_int(&w->starts, w->sources.data[begin]);
      kb_push_int(&w->ends, w->sources.data[i + 1 == end ? end : begin]);
    }
  } else if (unknown && *previous) { /* a run of unknown pieces is one */
    if (offsets && w->ends.count > 0) w->ends.data[w->ends.count - 1] = w->sources.data[end];
  } else {
    kb_push_int(&w->ids, id);
    if (offsets) {
      kb_push_int(&w->starts, w->sources.data[begin]);
      kb_push_int(&w->ends, w->sources.data[end]);
    }
  }
  *previous = unknown;
}

/* Pushes the pieces of w->word. */
static kb_status segment(const kb_tokenizer *t, kb_work *w, int offsets, kb_message *message) {
  const cell *cells = best_path(t, w);
  size_t end = w->word.count, begin = 0, count = 0;
  uint32_t *ends;
  int previous = 0;
  if (cells == NULL || !kb_reserve(&w->heap, &w->heap_room, (end + 1) * sizeof *ends, 1)) return kb_no_memory(message);
  ends = w->heap;
  for (; end > 0; end = cells[end].begin) ends[count++] = (uint32_t)end;
  while (count-- > 0) {
    emit(t, w, cells[ends[count]].id, begin, ends[count], &previous, offsets);
    begin = ends[count];
  }
  return KB_OK;
}

/* kb_plain of a text, and of one by the character map. */
kb_status kb_unigram_text(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int first, int offsets,
                          kb_message *message) {
  kb_status status = normalize(t, w, codes, count, 1, offsets, message);
  (void)first;
  return status == KB_OK && !kb_unigram_by_words(t, w, offsets) ? segment(t, w, offsets, message) : status;
}

kb_status kb_unigram_formed(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, int first, int offsets,
                            kb_message *message) {
  kb_status status = normalize(t, w, codes, count, 0, offsets, message);
  (void)first;
  return status == KB_OK && !kb_unigram_by_words(t, w, offsets) ? segment(t, w, offsets, message) : status;
}

/* The text by the character map -> work->form. */
kb_status kb_unigram_form(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, kb_message *message) {
  size_t at = 0, i;
  while (at < count) {
    uint8_t one[4];
    kb_text part;
    size_t read = part_of(t, codes, at, count, 1, one, &part);
    if (read == 0) return kb_fail(message, KB_DAMAGED, "the character map of the SentencePiece model is cut off or changed");
    if (!kb_decode(part, &w->scratch)) return kb_no_memory(message);
    for (i = 0; i < w->scratch.count; i++) {
      kb_push_code(&w->form, w->scratch.data[i]);
      kb_push_int(&w->form_starts, (int32_t)at);
    }
    at += read;
  }
  for (i = 1; i < w->form_starts.count; i++) kb_push_int(&w->form_ends, w->form_starts.data[i]);
  if (w->form_starts.count > 0) kb_push_int(&w->form_ends, (int32_t)at);
  return KB_OK;
}
