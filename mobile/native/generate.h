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

/* What a search asks. */
typedef struct kb_search {
  const kb_decoding *how;
  int32_t end;
  const int32_t *prompt; /* at least one token, the last of which is gone on from */
  size_t prompt_count;
  size_t places; /* of the prompt, that stand before the first step's */
  void *context;
  /* The logits after each of `count` tokens at a place, of which text of the last call each goes on: [count, *width], the asked one's. */
  kb_status (*step)(void *context, const int32_t *tokens, const size_t *origin, size_t count, size_t column, const float **logits, size_t *width,
                    kb_message *message);
  /* Is told a text after each token; NULL: nobody. */
  kb_status (*told)(void *context, const kb_written *text, kb_message *message);
} kb_search;

/* The texts, best first: how->sequences of them, each with room for all tokens; kb_written_free frees them. */
kb_status kb_search_run(const kb_search *search, kb_written **texts, kb_message *message);
void kb_written_free(kb_written *texts, size_t count);

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
