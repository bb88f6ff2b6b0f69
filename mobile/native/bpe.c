/* Byte-level BPE (GPT-2, RoBERTa) and Gemma's. The rules are text/bpe.py's and text/metaspace_bpe.py's. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

#define BLANK_CODE 0x2581u /* a blank in SentencePiece's pieces */

enum { CACHED = 28, SLOTS = 4096 };

/* A word of the cache, and its tokens: whole words come again and again. */
struct kb_slot { uint8_t size, count; uint8_t word[CACHED]; int32_t ids[8]; };

void kb_byte_alphabet(uint32_t alphabet[256]) {
  uint32_t byte, other = 0x100;
  for (byte = 0; byte < 256; byte++) {
    int visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    alphabet[byte] = visible ? byte : other++;
  }
}

int kb_bpe_byte(const kb_tokenizer *t, int32_t id) {
  int i;
  if (t->pieces[id].size != 6 || t->pieces[id].data[0] != '<') return -1;
  for (i = 0; i < 256; i++)
    if (t->bytes[i] == id) return i;
  return -1;
}

kb_status kb_bpe_open(kb_tokenizer *t, kb_text merges, kb_message *message) {
  size_t i, k;
  kb_byte_alphabet(t->alphabet);
  for (i = 0; i < 256; i++) {
    uint8_t bytes[8];
    kb_text key = {(const char *)bytes, 6};
    if (t->metaspace) snprintf((char *)bytes, sizeof bytes, "<0x%02X>", (unsigned)i);
    else key.size = kb_utf8(t->alphabet[i], bytes);
    t->bytes[i] = kb_map_find(&t->ids, key);
    if (t->bytes[i] < 0) return kb_fail(message, KB_DAMAGED, "the vocabulary has no piece for the byte 0x%02lx", (unsigned long)i);
  }
  t->lengths = calloc(t->size, sizeof *t->lengths);
  if (t->lengths == NULL) return kb_no_memory(message);
  for (i = 0; i < t->size; i++) {
    const kb_text p = t->pieces[i]; /* a blank is U+0120: C4 A0 */
    if (t->metaspace) {
      t->lengths[i].bytes = kb_bpe_byte(t, (int32_t)i) >= 0 ? 1 : (int32_t)p.size;
      continue;
    }
    for (k = 0; k < p.size; k++) t->lengths[i].bytes += (p.data[k] & 0xC0) != 0x80;
    for (k = 0; k + 1 < p.size && memcmp(p.data + k, "\xC4\xA0", 2) == 0; k += 2) t->lengths[i].lead++;
    for (k = p.size; k > 1 && memcmp(p.data + k - 2, "\xC4\xA0", 2) == 0; k -= 2) t->lengths[i].tail++;
  }
  return kb_merges_open(t, merges, message);
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

static int is_space(uint32_t code) { return code == ' ' || code == BLANK_CODE; }

/* The same where a word is blanks and what follows them, or the whole text. */
static size_t metaspace_end(const kb_tokenizer *t, const uint32_t *codes, size_t at, size_t count) {
  size_t i = at;
  if (t->whole_texts) return count;
  while (i < count && is_space(codes[i])) i++;
  while (i < count && !is_space(codes[i])) i++;
  return i;
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

/* What a word is before anything is merged: its bytes, or its characters and the bytes of those that no piece has. */
static size_t symbols(const kb_tokenizer *t, const kb_bytes *word, int32_t *out) {
  size_t i, size, count = 0;
  for (i = 0; i < word->count; i += size) {
    const uint8_t lead = word->data[i];
    int32_t id = -1;
    size = 1;
    if (t->metaspace && (lead & 0xC0) != 0x80) { /* the first byte of a character */
      kb_text piece = {(const char *)word->data + i, lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4};
      id = kb_map_find(&t->ids, piece);
      if (id >= 0 && t->absent[id]) id = -1;
      if (id >= 0) size = piece.size;
    }
    out[count++] = id >= 0 ? id : t->bytes[lead];
  }
  return count;
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
  n = symbols(t, &w->word, w->ids.data + begin);
  if (t->ignore_merges && (whole = whole_word(t, w)) >= 0) w->ids.data[begin] = whole, n = 1;
  else n = kb_merge(t, w, w->ids.data + begin, n);
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

/* kb_form: the text with its blanks as pieces have them. */
kb_status kb_metaspace_form(const kb_tokenizer *t, kb_work *w, const uint32_t *codes, size_t count, kb_message *message) {
  size_t i;
  (void)t;
  for (i = 0; i < count; i++) {
    kb_push_code(&w->form, codes[i] == ' ' ? BLANK_CODE : codes[i]);
    kb_push_int(&w->form_starts, (int32_t)i);
    kb_push_int(&w->form_ends, (int32_t)i + 1);
  }
  return kb_work_failed(w) ? kb_no_memory(message) : KB_OK;
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
    size_t end = t->metaspace ? metaspace_end(t, codes, at, count) : word_end(t, codes, at, count), i, k, before = w->ids.count;
    w->word.count = w->sources.count = 0;
    for (i = at; i < end; i++) {
      size_t was = w->word.count;
      kb_push_utf8(&w->word, t->metaspace && codes[i] == ' ' ? BLANK_CODE : codes[i]);
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
