/* SentencePiece's model, of sentencepiece.c and unigram.c. */
#ifndef KB_UNIGRAM_H
#define KB_UNIGRAM_H

#include "internal.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

enum { PART, PLAIN, BLANK }; /* the character map's rules tell; the character itself; a blank, itself too */

struct kb_unigram {
  double *scores; /* of each piece; of a node's value the id is the piece */
  uint8_t *types;
  double unknown;
  uint32_t *units; /* the character map: a double array of darts-clone, and its values */
  size_t unit_count;
  char *values;
  size_t values_size;
  uint32_t root;
  uint8_t dummy_prefix, remove_extra, escape, byte_fallback, has_user;
  uint8_t separable; /* no piece holds U+2581 but as its first character, so that every word's path is its own */
  uint8_t plain[128]; /* PART, PLAIN, BLANK: what becomes of a character where ASCII or nothing follows */
  kb_trie user; /* user-defined pieces */
};

#define NO_NODE 0xffffffffu

/* What becomes of the text at codes[at]: the longest rule -> code points read; *found 0: the first one stays. 0: damaged. */
size_t kb_map_longest(const struct kb_unigram *u, const uint32_t *codes, size_t at, size_t count, kb_text *value, int *found);
int kb_piece_byte(kb_text piece); /* the byte of a piece such as <0x0A>; -1 of another */

size_t kb_word_length(const uint8_t *s, size_t size); /* the bytes up to the next U+2581 behind the first character */
static inline size_t kb_width(uint8_t lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }
/* Pushes the pieces of w->word, word by word. 0: only the whole text tells them, and nothing was pushed. */
int kb_unigram_by_words(const kb_tokenizer *t, kb_work *w, int offsets);

#endif
