/* What the files of the library share. Nothing here is exported. */
#ifndef KB_INTERNAL_H
#define KB_INTERNAL_H

#include <stdint.h>
#include <string.h>
#if defined(_MSC_VER)
#include <intrin.h>
#endif

#include "kerasbert.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* the numbers of Python, where -ffp-contract=off cannot be asked for, as by Swift's packages */
#endif

/* Limits on what a file may say; texts are the caller's. */
#define KB_MOST_BYTES ((size_t)1 << 30)  /* of a text: offsets are int32 */
#define KB_MOST_BUNDLE ((size_t)64 << 20) /* of a bundle's files together, as in storage/zips.py */
#define KB_MOST_FILES 64
#define KB_MOST_PIECES ((size_t)1 << 22)
#define KB_MOST_DEPTH 64 /* of json */
#define KB_MOST_LENGTH 65536 /* tokens of a row, and labels */
#define KB_MOST_VALUES ((size_t)1 << 28) /* of an output */

/* ---- memory.c ---- */

/* Growable arrays. A push that finds no memory sets `failed` and does nothing: the caller looks once, at the end. */
#define KB_ARRAY(name, type) \
  typedef struct name { \
    type *data; \
    size_t count, room; \
    int failed; \
  } name
KB_ARRAY(kb_bytes, uint8_t);
KB_ARRAY(kb_ints, int32_t);
KB_ARRAY(kb_codes, uint32_t);

/* Room for `wanted` items of `size` bytes in *data; 0 where there is no memory, and then nothing has changed. */
int kb_reserve(void **data, size_t *room, size_t wanted, size_t size);

static inline void kb_push_byte(kb_bytes *a, uint8_t value) {
  if (a->count == a->room && !kb_reserve((void **)&a->data, &a->room, a->count + 1, 1)) a->failed = 1;
  else a->data[a->count++] = value;
}

static inline void kb_push_int(kb_ints *a, int32_t value) {
  if (a->count == a->room && !kb_reserve((void **)&a->data, &a->room, a->count + 1, sizeof value)) a->failed = 1;
  else a->data[a->count++] = value;
}

static inline void kb_push_code(kb_codes *a, uint32_t value) {
  if (a->count == a->room && !kb_reserve((void **)&a->data, &a->room, a->count + 1, sizeof value)) a->failed = 1;
  else a->data[a->count++] = value;
}

void kb_push_bytes(kb_bytes *a, const void *data, size_t size);
int kb_ints_room(kb_ints *a, size_t wanted);  /* 0 where there is no memory; `failed` is set then */
int kb_codes_room(kb_codes *a, size_t wanted);

/* Fills the message and gives the status back. */
kb_status kb_fail(kb_message *message, kb_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;
kb_status kb_no_memory(kb_message *message);

/* A text for a message: at most 40 bytes of it, printable. */
typedef struct kb_shown {
  char text[44];
} kb_shown;
kb_shown kb_show(kb_text text);

static inline kb_text kb_literal(const char *text) {
  kb_text made = {text, strlen(text)};
  return made;
}
int kb_same(kb_text a, kb_text b);
int kb_is(kb_text text, const char *literal);

/* String -> int32 >= 0. The strings are the caller's and must stay. */
typedef struct kb_map {
  struct kb_entry { kb_text key; int32_t value; } *entries;
  size_t room, count;
} kb_map;
int kb_map_open(kb_map *map, size_t count); /* room for `count`; 0 where there is no memory */
int32_t kb_map_find(const kb_map *map, kb_text key); /* -1 where there is none */
int32_t kb_map_put(kb_map *map, kb_text key, int32_t value); /* the value before, -1 where there was none (then it is set) */
void kb_map_close(kb_map *map);

/* A number that threads share. */
static inline int32_t kb_load(const int32_t *shared) {
#ifdef __GNUC__
  return __atomic_load_n(shared, __ATOMIC_ACQUIRE);
#else
  return *(const volatile int32_t *)shared; /* MSVC: an acquire */
#endif
}

static inline int32_t kb_exchange(int32_t *shared, int32_t value) {
#ifdef __GNUC__
  return __atomic_exchange_n(shared, value, __ATOMIC_ACQ_REL);
#else
  return _InterlockedExchange((volatile long *)shared, value);
#endif
}

/* ---- file.c ---- */

kb_status kb_file_map(const char *path, kb_text *data, kb_message *message); /* a file's bytes, until kb_file_unmap */
void kb_file_unmap(kb_text data);

/* ---- operators.c ---- */

/* Refuses a flatbuffer with what LiteRT would take unseen. */
kb_status kb_check_operators(kb_text data, kb_message *message);

/* ---- sha256.c ---- */

void kb_sha256(kb_text data, char hex[65]);

/* ---- trie.c ---- */

/* Strings -> numbers, as a double array: the child of node n by byte b is base[n] ^ b where parent[that] == n. */
typedef struct kb_node { uint32_t base, parent; int32_t value; } kb_node;
typedef struct kb_trie {
  kb_node *nodes;
  size_t count;
} kb_trie;
#define KB_ROOT 0u
#define KB_NOWHERE 0xffffffffu

typedef struct kb_word { kb_text text; int32_t value; } kb_word;

/* Builds it of different, not empty strings, which it sorts. Strings that are there twice keep one of the values. */
kb_status kb_trie_open(kb_trie *trie, kb_word *words, size_t count, kb_message *message);
void kb_trie_close(kb_trie *trie);

/* The child of a node; KB_NOWHERE where there is none. */
static inline uint32_t kb_step(const kb_trie *trie, uint32_t node, uint8_t byte) {
  uint32_t next = trie->nodes[node].base ^ byte; /* below count: bases are aligned to 256, and so is count */
  return trie->nodes[next].parent == node ? next : KB_NOWHERE;
}

/* ---- unicode.c ---- */

uint32_t kb_flags(uint32_t code); /* KB_DROP ... KB_MOVABLE of tables.h */
uint32_t kb_lower(uint32_t code);
unsigned kb_class(uint32_t code); /* canonical combining class */

/* NFD of a code point -> its number of code points, at most 4; the same without marks, but of a mark. */
size_t kb_apart(uint32_t code, uint32_t *out);
size_t kb_strip(uint32_t code, uint32_t *out);
uint32_t kb_together(uint32_t first, uint32_t second); /* the composed one; 0: none */
int kb_joins(uint32_t code); /* whether it may change with what is before it in NFC */

/* UTF-8 -> code points; invalid bytes are U+FFFD, one for each maximal part of a sequence (Unicode, table 3-8). */
int kb_decode(kb_text text, kb_codes *codes); /* 0 where there is no memory */
int kb_valid(kb_text text); /* whether it is UTF-8 */
void kb_code_starts(kb_text text, size_t from, kb_ints *starts); /* the byte where each code point begins; `from`: of the first */
size_t kb_utf8(uint32_t code, uint8_t *out); /* code point -> 1 to 4 bytes */
void kb_push_utf8(kb_bytes *bytes, uint32_t code);

/* Flags again, for code in a hurry: those that the tokenizers ask. Must equal tables.h, which unicode.c checks. */
enum {
  KB_F_DROP = 1, KB_F_SPACE = 2, KB_F_CJK = 4, KB_F_PUNCTUATION = 8, KB_F_MARK = 16, KB_F_LETTER = 32, KB_F_NUMBER = 64,
  KB_F_BLANK = 128, KB_F_WORD = 256, KB_F_LOWER = 512, KB_F_STRIP = 1024, KB_F_CLASS = 2048, KB_F_MOVABLE = 4096
};

/* ---- json.c ---- */

typedef enum kb_json_type { KB_NULL, KB_FALSE, KB_TRUE, KB_NUMBER, KB_STRING, KB_LIST, KB_OBJECT } kb_json_type;

/* A value. Of an object, keys and values follow each other; `next` is the number of the value after it and all that it holds. */
typedef struct kb_json_node {
  kb_json_type type;
  kb_text text; /* of a string, decoded; of a number, as it is written */
  uint32_t next, count; /* count: of a list its values, of an object its pairs */
} kb_json_node;

typedef struct kb_json {
  kb_json_node *nodes;
  size_t count, room;
  kb_bytes strings; /* of strings with escapes */
} kb_json;

/* Parses a file, which must stay. Refuses what Python's json refuses, lone surrogates, and more than KB_MOST_DEPTH levels. */
kb_status kb_json_open(kb_json *json, kb_text text, const char *name, kb_message *message);
void kb_json_close(kb_json *json);
/* The value of a key of an object (the last of equal ones); 0, which is the whole and no value, where there is none. */
uint32_t kb_json_get(const kb_json *json, uint32_t object, const char *key);
int kb_json_number(const kb_json *json, uint32_t node, double *number); /* 0: it is none */
int kb_json_integer(const kb_json *json, uint32_t node, long *number, long least, long most);

/* ---- added.c ---- */

typedef struct kb_added { int32_t id; uint8_t single_word, lstrip, rstrip, normalized, special, piece; kb_text content; } kb_added;

/* Finds added tokens in code points. */
typedef struct kb_matcher {
  kb_trie trie; /* their forms -> number of `tokens` */
  const kb_added *tokens;
  size_t count; /* of forms */
  uint8_t begins[128]; /* whether a form begins with this ASCII character */
} kb_matcher;

/* A part of a text: a token, or (id -1) what lies between tokens. */
typedef struct kb_part { int32_t id; size_t begin, end; } kb_part;
KB_ARRAY(kb_parts, kb_part);

kb_status kb_matcher_open(kb_matcher *matcher, const kb_added *tokens, const kb_text *forms, const uint8_t *taken, size_t count,
                          kb_message *message);
void kb_matcher_split(const kb_matcher *matcher, const uint32_t *codes, size_t count, kb_parts *parts);

/* ---- the tokenizers ---- */

typedef struct kb_item { char text; int32_t id, segment; } kb_item; /* text: 'A', 'B', or 0 for a special token */

typedef struct kb_pair { uint64_t key; int32_t rank, merged; } kb_pair;

typedef struct kb_piece { int32_t bytes, lead, tail; } kb_piece; /* of byte-level BPE; lead, tail: blanks at both ends */

enum { KB_PAD, KB_UNK, KB_CLS, KB_SEP, KB_MASK, KB_PARTS };

struct kb_work;

/* Pushes ids, and with `offsets` starts and ends, of codes[0 .. count) onto work->ids, work->starts, work->ends.
   first: nothing stands before it in the text. */
typedef kb_status (*kb_plain)(const kb_tokenizer *tokenizer, struct kb_work *work, const uint32_t *codes, size_t count, int first,
                              int offsets, kb_message *message);

struct kb_tokenizer {
  const char *kind;
  uint64_t stamp; /* a hash of its files */
  kb_plain plain; /* of a text */
  kb_plain formed; /* of a normalised text */
  kb_status (*form)(const kb_tokenizer *, struct kb_work *, const uint32_t *codes, size_t count, kb_message *); /* -> work->form */
  /* vocabulary: the bytes of all pieces, in one block */
  char *blob;
  kb_text *pieces;
  size_t size;
  kb_map ids;
  int32_t parts[KB_PARTS]; /* ids of the special tokens, -1 where there is none */
  kb_item *single, *pair;
  size_t single_count, pair_count;
  /* added tokens */
  kb_added *added;
  char *added_blob;
  size_t added_count;
  kb_bytes form_blob;
  kb_matcher raw, normal;
  uint8_t *special, *is_added, *absent; /* of each id; absent: only `added` gives it */
  /* wordpiece, unigram */
  kb_trie trie;
  /* wordpiece */
  uint8_t lowercase, strip_accents, split_cjk;
  size_t max_word_chars;
  uint32_t inside; /* node of "##" */
  uint16_t ascii[128]; /* 0 dropped, 32 a blank, else the character; 256 more of one that is a word */
  /* bpe */
  uint8_t add_prefix_space, ignore_merges;
  uint8_t nfc;
  uint8_t metaspace, whole_texts; /* of Gemma's; whether a piece goes over the beginning of a word */
  size_t digits; /* of a word at most; 0: GPT-2's words */
  uint32_t alphabet[256];
  int32_t bytes[256]; /* ids; of unigram those of byte pieces */
  kb_pair *merges;
  size_t merges_room;
  kb_piece *lengths;
  /* unigram */
  struct kb_unigram *unigram;
};

/* Working memory of one thread behind the kb_tokens that it fills. */
typedef struct kb_work {
  kb_tokens view; /* first: a kb_tokens is a kb_work */
  kb_ints ids, starts, ends, segments;
  kb_codes codes, form, scratch;
  kb_ints form_starts, form_ends;
  kb_bytes word;
  kb_bytes text; /* of kb_detokenize */
  kb_ints sources;
  kb_parts parts, inner;
  struct kb_slot *slots; /* of BPE's word cache */
  struct kb_memos *memos; /* of unigram's */
  uint64_t stamp, memo_stamp; /* of the tokenizer that filled the cache */
  void *heap; size_t heap_room;
  void *lattice; size_t lattice_room;
} kb_work;
int kb_work_failed(const kb_work *work);

/* Each kind: what it makes of its files once the vocabulary and the added tokens are there; kb_plain of a text, and of a
   normalised one; `form`. */
kb_status kb_wordpiece_open(kb_tokenizer *tokenizer, kb_message *message);
kb_status kb_bpe_open(kb_tokenizer *tokenizer, kb_text merges, kb_message *message);
int kb_bpe_byte(const kb_tokenizer *tokenizer, int32_t id); /* the byte that a piece <0xFF> stands for; -1 of another */
kb_status kb_unigram_pieces(kb_tokenizer *tokenizer, kb_text model, kb_message *message); /* its vocabulary */
kb_status kb_unigram_open(kb_tokenizer *tokenizer, kb_message *message);
void kb_unigram_close(kb_tokenizer *tokenizer);
int kb_unigram_plain(const kb_tokenizer *tokenizer); /* whether added tokens may stand beside the model */
uint64_t kb_stamp(const kb_file *files, size_t count);
/* merges.c: merges.txt; and merging n symbols -> how many are left, 0: no memory */
kb_status kb_merges_open(kb_tokenizer *tokenizer, kb_text merges, kb_message *message);
size_t kb_merge(const kb_tokenizer *tokenizer, struct kb_work *work, int32_t *symbols, size_t n);
int kb_unigram_is_byte(const kb_tokenizer *tokenizer, int32_t id);
#define KB_PLAIN(name) \
  kb_status name(const kb_tokenizer *, kb_work *, const uint32_t *codes, size_t count, int first, int offsets, kb_message *)
#define KB_FORM(name) kb_status name(const kb_tokenizer *, kb_work *, const uint32_t *codes, size_t count, kb_message *)
KB_PLAIN(kb_wordpiece_plain);
KB_PLAIN(kb_wordpiece_formed);
KB_FORM(kb_wordpiece_form);
KB_PLAIN(kb_bpe_plain);
KB_FORM(kb_metaspace_form);
KB_FORM(kb_nfc_form);
KB_PLAIN(kb_nfc_plain);
KB_PLAIN(kb_unigram_text);
KB_PLAIN(kb_unigram_formed);
KB_FORM(kb_unigram_form);
void kb_byte_alphabet(uint32_t alphabet[256]); /* byte -> the code point that stands for it in pieces of byte-level BPE */


/* encode.c: offsets in the form from `low` on -> in the text from `begin` on */
void kb_place(kb_work *work, size_t from, size_t low, size_t begin);

/* tokenizer.c: files and settings */
const kb_file *kb_file_find(const kb_file *files, size_t count, const char *name);
void kb_join(const kb_tokenizer *tokenizer, const int32_t *a, size_t a_count, const int32_t *b, size_t b_count, int pair,
             kb_ints *ids, kb_ints *segments, size_t *places);

#endif
