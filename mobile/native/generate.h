/* Texts that are generated: the options, the search, and what runs the programs of a file. The rules are answers/'s. */
#ifndef KB_GENERATE_H
#define KB_GENERATE_H

#include "answers.h"

#define KB_MOST_BEAMS 256
#define KB_MOST_TOKENS 65536 /* of a list of tokens */

/* answers.decoding.Decoding, and the options of a prompt. `none` of a number that may be absent is said beside it. */
typedef struct kb_decoding {
  kb_text prefix, separator; /* of the json that they were read from */
  long target_length, max_tokens, min_new_tokens, beams, top_k, seed, no_repeat, sequences; /* top_k: 0 is none */
  long forced_bos, forced_eos;                                                              /* -1 is none */
  double length_penalty, repetition, temperature, top_p;                                    /* temperature, top_p: 0 is none */
  int draws, early, masked, alone; /* early: 1, or 2 of "never"; alone: one row of source and target */
  int start; /* a part of the special tokens, KB_PAD ... */
  kb_ints suppress, begin_suppress;
  kb_ints words; /* of bad_words_ids: the size of each, then its ids */
} kb_decoding;

/* Reads options over those that are there; of a call, what a file cannot change is refused. `json` must stay. */
kb_status kb_decoding_read(kb_decoding *how, const kb_json *json, uint32_t options, int of_call, kb_message *message);
void kb_decoding_begin(kb_decoding *how);
kb_status kb_decoding_copy(kb_decoding *to, const kb_decoding *from); /* lists of its own; texts are shared */
kb_status kb_decoding_check(const kb_decoding *how, kb_message *message); /* what does not go together */
void kb_decoding_close(kb_decoding *how);
static inline size_t kb_most_tokens(const kb_decoding *how) { return (size_t)(how->max_tokens ? how->max_tokens : how->target_length); }

kb_status kb_prompt_row(kb_rows *rows, const kb_decoding *how, kb_text text, kb_message *message); /* prompt.c */

/* ---- search.c ---- */

/* A text, a beam, and its score. */
typedef struct kb_written {
  int32_t *ids;
  size_t count;
  float score;
} kb_written;

typedef struct kb_search kb_search;

/* What a search asks: the logits after each of `count` tokens at a place, of which text of the last call each goes on; 0: it has ended. */
typedef struct kb_asked {
  size_t count, column;
  const int32_t *tokens, *origins;
} kb_asked;

/* prompt: at least one token, the last of which is gone on from; it and `how` must stay. */
kb_status kb_search_open(const kb_decoding *how, int32_t end, const int32_t *prompt, size_t count, kb_search **search, kb_message *message);
kb_asked kb_search_asked(const kb_search *search);
/* The logits that were asked for: `size` numbers, as many of each. */
kb_status kb_search_push(kb_search *search, const float *logits, size_t size, kb_message *message);
/* The texts: how->sequences of them, best first, when it has ended; of one that does not compete the text up to now. */
const kb_written *kb_search_texts(const kb_search *search);
void kb_search_close(kb_search *search);

/* choose.c */
/* Logits or log-probabilities after penalties, bans and forced tokens, in place; `seen`: the prompt and the text. */
void kb_adjust(const kb_decoding *how, float *x, size_t width, const kb_ints *seen, size_t step, int32_t end, uint8_t *marks);
/* The number of a drawn token. `room`: memory that grows. */
typedef struct kb_scored { float x; uint32_t at; } kb_scored;
typedef struct kb_sorting { float *copy; size_t copy_room; kb_scored *best; size_t best_room; } kb_sorting;
int kb_draw(const kb_decoding *how, float *x, size_t width, size_t row, size_t step, kb_sorting *room, size_t *token); /* 0: no memory */
/* The places of the `count` largest of x -> room->best, in order, of equal ones the first; 0 where there is no memory. */
int kb_largest(const float *x, size_t size, size_t count, kb_sorting *room);
size_t kb_most(const float *x, size_t size); /* the place of the largest */

/* ---- what runs the programs ---- */

#if !defined(__wasm__)
typedef struct kb_programs {
  void *context;
  /* Runs a program that reads. What `encode` gives stays for all steps of the text; what `prefill` gives is state 0. */
  kb_status (*read)(void *context, const char *signature, const kb_input *inputs, size_t count, kb_message *message);
  /* All states go on in a program of more places; begin: of a text, whose one state is zero where nothing was read (`from_read` 0). */
  kb_status (*grow)(void *context, const char *signature, int begin, int from_read, kb_message *message);
  /* A step from state `from` of the last generation of states into `to` of the next one -> logits, which stay until the next call. */
  kb_status (*step)(void *context, int32_t token, int32_t column, size_t from, size_t to, const float **logits, size_t *width, kb_message *message);
  void (*turn)(void *context); /* the next generation of states is the last one now */
  void (*close)(void *context);
} kb_programs;
#endif

#endif
