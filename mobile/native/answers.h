/* A model, the rows of an input, and what the kinds of answers share. */
#ifndef KB_ANSWERS_H
#define KB_ANSWERS_H

#include "internal.h"

#define KB_MOST_ROWS 1024 /* of an input, as in the Python runtime; each is a run of the network */
#define KB_NOT_FINITE 2   /* `failed` of an answer's json that would hold such a number */

struct kb_kind;

struct kb_model {
  kb_tokenizer *tokenizer;
  const struct kb_kind *kind;
  kb_text *labels;
  char *label_blob;
  kb_text settings; /* bundle.json, a copy */
  size_t label_count, longest, parts; /* parts: texts of an input, as the file says */
  size_t front; /* bytes before the bundle */
  /* options of the kinds; numbers[i] is OPTIONS[i] of model.c */
  long stride, question, max_answer, n_best, top, starts;
  uint8_t unanswerable, crf, context_first;
  char *prompt; /* the bytes of `prompts`; of a generation prefix and separator */
  size_t prompt_size;
  kb_text *prompts; /* of vectors: names and texts by turns */
  size_t prompt_count; /* of both */
  kb_text before; /* the one that is put before each text where a call names none */
  double null_threshold;
  struct kb_decoding *generation; /* of a kind that generates: its options, whose texts stand in `prompt`; else NULL */
  double *table; /* of a CRF: [L + 2, L]; of several labels: a threshold each */
  size_t table_count;
};

/* A row and what its decoding needs. */
typedef struct kb_packed {
  size_t from, length; /* in rows->ids */
  int32_t position, truncated;
  size_t begin, count, place, null, own_begin, own_end; /* span: a window of the context; tags: own_* in rows->words */
} kb_packed;

KB_ARRAY(kb_labels, kb_label);
KB_ARRAY(kb_spans, kb_span);
KB_ARRAY(kb_floats, float);

/* The typed answer: what the kinds tell while they write json. */
typedef struct kb_told {
  kb_result view;
  kb_labels labels;
  kb_spans spans, entities;
  kb_floats values;
  kb_bytes texts; /* UTF-8, which the view points to */
  kb_ints bytes;  /* of each code point of `text` its place in the caller's bytes; empty where they are valid UTF-8 */
  int whole;      /* whether `view` is an answer */
} kb_told;

/* The rows of one input. Offsets are code points of `text`. */
struct kb_rows {
  const kb_model *model;
  kb_text before; /* the prompt of the call */
  kb_packed *rows;
  size_t count, room;
  kb_ints ids, segments;
  kb_work *work;
  kb_codes text; /* the context, the sentence, or the text with masks */
  kb_codes *choices; /* code points of each choice */
  size_t choice_count;
  kb_ints starts, ends; /* span: of each token; tags: of each word */
  kb_ints words, tokens; /* tags: the words that each row answers for, and their tokens in it */
  kb_ints masks; /* fill-mask: where a mask begins and ends in `text` */
  int full;  /* whether the input wanted more than KB_MOST_ROWS */
  int asked; /* span: whether there is a question */
  kb_bytes json;
  kb_told told;
};

/* What an answer is. */
typedef struct kb_kind {
  const char *name;
  int labelled, per_token;
  kb_status (*rows)(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message);
  kb_status (*answer)(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message);
} kb_kind;

extern const kb_kind kb_kinds[]; /* ended by one without a name */

kb_status kb_model_prompt(const kb_model *model, kb_text name, kb_text *text, kb_message *message); /* an empty name: none */
kb_status kb_rows_new(const kb_model *model, kb_rows **rows, kb_message *message); /* without a row */
/* A row of ids; NULL where there is no memory. */
kb_packed *kb_row_add(kb_rows *rows, const int32_t *a, size_t a_count, const int32_t *b, size_t b_count, int pair, size_t *places);
/* A row as kb_pack makes it. */
kb_status kb_row_pack(kb_rows *rows, kb_text first, const kb_text *second, kb_message *message);
/* A row of ids as they are. */
kb_status kb_row_of(kb_rows *rows, const int32_t *ids, size_t count, int truncated, kb_message *message);
int kb_is_blank(uint32_t code); /* what Python's str.strip takes away */

size_t kb_span_width(const kb_model *model); /* numbers of a token: its logits as first and last, of each of the likeliest starts */
kb_status kb_span_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message);
kb_status kb_span_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message);
kb_status kb_tags_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message);
kb_status kb_tags_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message);
kb_status kb_mask_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message);
kb_status kb_mask_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message);

/* Telling a typed answer: result.c. */
void kb_told_clear(kb_told *told);
void kb_told_free(kb_told *told);
int kb_told_source(kb_rows *rows, const kb_text *texts, size_t count); /* the texts that make rows->text; 0: no memory */
int kb_told_end(kb_rows *rows);                                        /* all is told; 0: no memory */
kb_text kb_tell_codes(kb_rows *rows, const uint32_t *codes, size_t count); /* a text whose data kb_told_end sets, in their order */
kb_text kb_tell_text(kb_rows *rows, kb_text text);                         /* likewise */
void kb_tell_label(kb_rows *rows, kb_text name, double score, int32_t id, int chosen);
void kb_tell_span(kb_spans *list, const kb_text *label, size_t start, size_t end, double score);
void kb_tell_value(kb_rows *rows, float value);
kb_status kb_prompt_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message);
kb_status kb_prompt_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message);
kb_status kb_generation_read(kb_model *m, const kb_json *json, kb_message *message); /* prompt.c: what model.c does of other kinds */
void kb_generation_close(kb_model *m);

/* Writing json. */
void kb_put(kb_bytes *json, const char *text);
void kb_put_number(kb_bytes *json, double value);
void kb_put_string(kb_bytes *json, kb_text text);
void kb_put_codes(kb_bytes *json, const uint32_t *codes, size_t count);
void kb_put_truncated(kb_bytes *json, const kb_rows *rows); /* of any row; ends the object */

#endif
