/* Ids -> text, as `decode` of each kind of tokenizer: kerasbert/text/. */
#include <stdlib.h>

#include "internal.h"

#define BLANK_PIECE "\xE2\x96\x81" /* U+2581, a blank of SentencePiece's pieces */
#define CODES 0x180                /* above all code points of the byte alphabet */

/* The bytes of a piece of byte-level BPE; a special token may hold characters that stand for none. */
static int push_bytes(const int16_t *bytes, kb_text piece, kb_codes *codes, kb_bytes *out) {
  size_t i;
  if (!kb_decode(piece, codes)) return 0;
  for (i = 0; i < codes->count; i++) {
    int byte = codes->data[i] < CODES ? bytes[codes->data[i]] : -1;
    if (byte >= 0) kb_push_byte(out, (uint8_t)byte);
    else kb_push_utf8(out, codes->data[i]);
  }
  return 1;
}

static void push_replaced(kb_text piece, const char *pattern, const char *by, kb_bytes *out) {
  size_t i, size = strlen(pattern);
  for (i = 0; i < piece.size; i++) {
    if (i + size <= piece.size && memcmp(piece.data + i, pattern, size) == 0) kb_push_bytes(out, by, strlen(by)), i += size - 1;
    else kb_push_byte(out, (uint8_t)piece.data[i]);
  }
}

static void push_unigram(const kb_tokenizer *t, int32_t id, kb_bytes *out) {
  size_t i;
  if (t->metaspace) {
    int byte = kb_bpe_byte(t, id);
    if (byte < 0) push_replaced(t->pieces[id], BLANK_PIECE, " ", out);
    else kb_push_byte(out, (uint8_t)byte);
    return;
  }
  if (!kb_unigram_is_byte(t, id)) {
    push_replaced(t->pieces[id], BLANK_PIECE, " ", out);
    return;
  }
  for (i = 0; i < 256; i++)
    if (t->bytes[i] == id) kb_push_byte(out, (uint8_t)i);
}

/* A piece behind those before it, a blank between them, and " ##" left out. */
static int push_wordpiece(kb_text piece, int first, kb_bytes *out) {
  kb_text joined;
  char *copy;
  if (first) {
    kb_push_bytes(out, piece.data, piece.size);
    return 1;
  }
  copy = malloc(piece.size + 1);
  if (copy == NULL) return 0;
  copy[0] = ' ';
  memcpy(copy + 1, piece.data, piece.size);
  joined.data = copy, joined.size = piece.size + 1;
  push_replaced(joined, " ##", "", out);
  free(copy);
  return 1;
}

static int left_out(const kb_tokenizer *t, int32_t id) {
  if (t->unigram != NULL || t->metaspace) return t->special[id] && !t->is_added[id] && id != t->parts[KB_UNK] && id != t->parts[KB_MASK];
  return id == t->parts[KB_PAD] || id == t->parts[KB_CLS] || id == t->parts[KB_SEP];
}

KB_API kb_status kb_detokenize(const kb_tokenizer *t, const int32_t *ids, size_t count, kb_tokens *tokens, kb_text *text, kb_message *message) {
  kb_work *w = (kb_work *)tokens;
  uint32_t alphabet[256];
  int16_t bytes[CODES];
  size_t i;
  int first = 1, good = 1;
  kb_text raw;
  text->data = NULL, text->size = 0;
  memset(bytes, -1, sizeof bytes);
  kb_byte_alphabet(alphabet);
  for (i = 0; i < 256; i++) bytes[alphabet[i]] = (int16_t)i;
  w->word.count = 0, w->word.failed = 0;
  for (i = 0; i < count && good; i++) {
    if (ids[i] < 0 || (size_t)ids[i] >= t->size)
      return kb_fail(message, KB_ARGUMENT, "the id %ld is none of the %lu pieces", (long)ids[i], (unsigned long)t->size);
    if (left_out(t, ids[i])) continue;
    if (t->unigram != NULL || t->metaspace) push_unigram(t, ids[i], &w->word);
    else if (t->lengths == NULL) good = push_wordpiece(t->pieces[ids[i]], first, &w->word);
    else if (t->is_added[ids[i]]) kb_push_bytes(&w->word, t->pieces[ids[i]].data, t->pieces[ids[i]].size);
    else good = push_bytes(bytes, t->pieces[ids[i]], &w->codes, &w->word);
    first = 0;
  }
  raw.data = (const char *)w->word.data, raw.size = w->word.count;
  if (!good || w->word.failed || !kb_decode(raw, &w->codes)) return kb_no_memory(message);
  w->text.count = 0, w->text.failed = 0;
  for (i = t->unigram != NULL && w->codes.count > 0 && w->codes.data[0] == ' '; i < w->codes.count; i++) kb_push_utf8(&w->text, w->codes.data[i]);
  if (w->text.failed) return kb_no_memory(message);
  text->data = (const char *)w->text.data, text->size = w->text.count;
  return KB_OK;
}
