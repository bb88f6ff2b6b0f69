/* A runner: of runner.c, and of generate.c where texts are generated. */
#ifndef KB_RUNNER_H
#define KB_RUNNER_H

#include "answers.h"

#define KB_MOST_INPUTS 8

typedef struct kb_signature { const char *name; size_t length; } kb_signature;

typedef struct kb_reads { const char *name; int what, is_bool; int32_t pad; } kb_reads; /* what: a place in `filled` of runner.c */

struct kb_writer; /* of generate.c */

struct kb_runner {
  const kb_model *model;
  kb_model *own;  /* of kb_runner_open */
  kb_text mapped; /* likewise */
  kb_network network;
  int32_t busy, cancelled; /* shared by threads */
  size_t most_rows;
  kb_bytes names; /* of signatures, inputs and the output, each ended by a zero */
  kb_signature *signatures; /* by length */
  size_t signature_count;
  int any_length;
  kb_reads inputs[KB_MOST_INPUTS];
  size_t input_count;
  const char *output;
  kb_rows *rows; /* of the last answer */
  int32_t *numbers; /* of the inputs of a row */
  size_t numbers_room;
  float *values; /* of the rows */
  size_t values_room;
  struct kb_writer *writer; /* of a file that generates; else NULL */
};

/* A string of an object, copied into r->names; NULL: there is none, or it does not end where it says. */
const char *kb_runner_string(kb_runner *r, const kb_json *json, uint32_t node);
int kb_by_length(const void *a, const void *b); /* qsort's, of signatures */
/* The inputs of a row, padded to `length`: `inputs` has room for all. 0: no memory. */
int kb_runner_fill(kb_runner *r, const kb_row *row, size_t length, kb_input *inputs);
kb_status kb_runner_cancelled(kb_message *message);

/* ---- generate.c ---- */

kb_status kb_writer_open(kb_runner *r, const kb_json *json, kb_message *message);
void kb_writer_close(struct kb_writer *writer);
const kb_result *kb_writer_result(const struct kb_writer *writer); /* of the last text */
kb_status kb_writer_over(struct kb_writer *writer, kb_network *litert, kb_message *message); /* LiteRT's programs */

#endif
