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

#endif
