/* kerasbert's portable core: text -> rows of token ids, and outputs of a model -> answers. C99, no dependencies.

   It reads what `kerasbert-mobile compress` writes: the bundle behind a .tflite file, or the tokenizer's files alone. What it
   gives equals the Python runtime's: ids, offsets, rows and answers. The network is run by LiteRT's library, which a kb_runner
   loads, or by the caller.

   Threads: a kb_tokenizer and a kb_model never change after they are opened, so that threads may share them. A kb_tokens, a
   kb_rows and a kb_runner belong to one thread at a time. There is no other state.
   Texts are UTF-8; what is invalid counts as U+FFFD, as by Python's errors="replace". Offsets are code points of the text, ends
   exclusive. */
#ifndef KERASBERT_H
#define KERASBERT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define KB_API __declspec(dllexport)
#elif defined(__GNUC__)
#define KB_API __attribute__((visibility("default")))
#else
#define KB_API
#endif

/* kerasbert's version, of which this header is a part. */
#define KB_RELEASE "0.1.0"

/* Grows with every change of this header that a caller must follow. */
#define KB_VERSION 2

/* How a call went. All but KB_OK come with a message. */
typedef enum kb_status {
  KB_OK = 0,
  KB_NO_MEMORY = 1,   /* an allocation failed */
  KB_DAMAGED = 2,     /* a file is not what it says, or too large */
  KB_UNSUPPORTED = 3, /* a kind of file, tokenizer, input or answer that only the Python runtime knows; named in the message */
  KB_ARGUMENT = 4,    /* the caller's arguments do not fit */
  KB_CANCELLED = 5,   /* kb_runner_cancel */
  KB_INTERPRETER = 6  /* LiteRT's library is not to be loaded, or fails */
} kb_status;

/* One line about the last call that failed: what, received, expected. */
typedef struct kb_message {
  char text[256];
} kb_message;

/* Some bytes, not ended by a zero. */
typedef struct kb_text {
  const char *data;
  size_t size;
} kb_text;

/* A file in memory. */
typedef struct kb_file {
  kb_text name, content;
} kb_file;

typedef struct kb_tokenizer kb_tokenizer;
typedef struct kb_model kb_model;
typedef struct kb_rows kb_rows;

/* The tokens of a text. The arrays are valid until the next call that fills them. */
typedef struct kb_tokens {
  size_t count;
  const int32_t *ids;
  const int32_t *starts, *ends; /* of kb_tokenize alone */
  const int32_t *segments;      /* of kb_pack alone */
  int32_t truncated;            /* of kb_pack: whether tokens of the texts are missing */
} kb_tokens;

/* One packed row, as a model reads it. */
typedef struct kb_row {
  size_t length;
  const int32_t *ids, *segments;
  int32_t position; /* of a mask (fill-mask), else -1 */
  int32_t truncated;
} kb_row;

/* KB_VERSION of the library. */
KB_API int32_t kb_version(void);

/* A tokenizer of the files that its Python form's `save` writes: tokenizer.json beside vocab.txt (wordpiece), vocab.json and
   merges.txt (bpe) or spiece.model (unigram). The files are not needed afterwards. */
KB_API kb_status kb_tokenizer_open(const kb_file *files, size_t count, kb_tokenizer **tokenizer, kb_message *message);
KB_API void kb_tokenizer_close(kb_tokenizer *tokenizer);

/* Room for tokens, with its working memory; NULL where there is no memory. */
KB_API kb_tokens *kb_tokens_new(void);
KB_API void kb_tokens_free(kb_tokens *tokens);

/* Ids of a text without special tokens. */
KB_API kb_status kb_encode(const kb_tokenizer *tokenizer, kb_text text, kb_tokens *tokens, kb_message *message);

/* Ids and offsets of a text without special tokens. */
KB_API kb_status kb_tokenize(const kb_tokenizer *tokenizer, kb_text text, kb_tokens *tokens, kb_message *message);

/* Ids and segments of a text, or of a pair (`second` is not NULL), with special tokens, at most `length` (0: any). The longer
   text loses its end first. A row without any token, of no text and a template without special tokens, is one padding token. */
KB_API kb_status kb_pack(const kb_tokenizer *tokenizer, kb_text first, const kb_text *second, size_t length, kb_tokens *tokens,
                         kb_message *message);

/* The text of ids without special tokens, as UTF-8. It lives in `tokens` until their next call. */
KB_API kb_status kb_detokenize(const kb_tokenizer *tokenizer, const int32_t *ids, size_t count, kb_tokens *tokens, kb_text *text,
                               kb_message *message);

/* The model of a file that `kerasbert-mobile compress` wrote, or of its bundle alone. The bytes are not needed afterwards. */
KB_API kb_status kb_model_open(const void *data, size_t size, kb_model **model, kb_message *message);
KB_API void kb_model_close(kb_model *model);

/* Its tokenizer, which lives as long as the model; its kind of answer; tokens of its longest row; its number of labels. */
KB_API const kb_tokenizer *kb_model_tokenizer(const kb_model *model);
KB_API const char *kb_model_kind(const kb_model *model);
KB_API size_t kb_model_longest(const kb_model *model);
KB_API size_t kb_model_labels(const kb_model *model);

/* Its settings: the text of bundle.json, which names the signatures with their lengths, and their inputs and outputs. It lives as
   long as the model. */
KB_API kb_text kb_model_settings(const kb_model *model);

/* The rows of one input, at most 1,024: more are refused with KB_ARGUMENT. They are freed by kb_rows_free.

   texts: a text or the two of a pair; a question and its context (span); a text and its choices (choice); a raw text, or the
   words of one where `words` is not 0 (tags). */
KB_API kb_status kb_rows_make(const kb_model *model, const kb_text *texts, size_t count, int32_t words, kb_rows **rows,
                              kb_message *message);
/* The same of a text of a file of vectors, after another of its prompts than the default, by name; an empty name: after none. A name
   that the file does not have is refused with KB_ARGUMENT and those that it has. */
KB_API kb_status kb_rows_prompted(const kb_model *model, kb_text prompt, const kb_text *texts, size_t count, kb_rows **rows,
                                  kb_message *message);
KB_API size_t kb_rows_count(const kb_rows *rows);
KB_API kb_row kb_rows_row(const kb_rows *rows, size_t number);
KB_API void kb_rows_free(kb_rows *rows);

/* The answer of an input as json: what `to_json` of the Python object gives. The text lives until the next answer of these rows.

   Numbers that are not finite, of the outputs or of what is made of them, are refused with KB_ARGUMENT.
   outputs: of each row float32 [C], or [row's length, C] where tokens are answered (tags, span). sizes: numbers of each. */
KB_API kb_status kb_answer(const kb_model *model, kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_text *json,
                           kb_message *message);

/* Where a part of a text begins and ends; ends are exclusive. */
typedef struct kb_range {
  size_t start, end;
} kb_range;

/* A part of the text. Of words as they were given, offsets are those of the words joined by blanks. */
typedef struct kb_span {
  kb_text text;
  kb_text label; /* of tags, else empty */
  double score;
  kb_range codes, bytes, units; /* in code points, in bytes of the caller's UTF-8, in units of UTF-16 */
} kb_span;

/* A label, a choice, a token for a mask, or a text that was generated. */
typedef struct kb_label {
  kb_text name;
  double score;
  int32_t id;     /* of a token; else its place */
  int32_t chosen; /* the best; of several labels those above their thresholds */
} kb_label;

/* An answer that is read without json. What a kind does not have is empty:

   classification, multi_label: labels. choice: labels, the choices. regression: values[0]. vector: values.
   span: spans, the answer (empty where the text has none) and the alternatives, best first.
   tags: spans, the words; entities.
   generation: labels, the texts, best first; text, the best. Of a score: labels, the tokens but the first.
   tokens: labels, `label_count / mask_count` of each mask, best first; text, with the best tokens in it. */
typedef struct kb_result {
  const kb_label *labels;
  size_t label_count, mask_count;
  const kb_span *spans, *entities;
  size_t span_count, entity_count;
  const float *values;
  size_t value_count;
  kb_text text;
  int32_t truncated; /* whether tokens of the texts are missing */
} kb_result;

/* The last answer of the rows, until their next one; NULL where it failed, or where there is none. */
KB_API const kb_result *kb_rows_result(const kb_rows *rows);

/* Texts with int8 vectors, which `kerasbert-mobile index` wrote: what of them is nearest to a vector of the same .tflite. It never
   changes, so that threads may share it. */
typedef struct kb_index kb_index;

typedef struct kb_hit {
  size_t number; /* of the text, from 0 */
  double score;  /* the cosine of the int8 vectors */
  kb_text id, text;
} kb_hit;

/* The bytes must outlive the index. model: whose vectors it must hold; NULL: any. */
KB_API kb_status kb_index_open(const void *data, size_t size, const kb_model *model, kb_index **index, kb_message *message);
KB_API void kb_index_close(kb_index *index);
KB_API size_t kb_index_count(const kb_index *index);
KB_API size_t kb_index_width(const kb_index *index);

/* The texts of the largest cosines with a vector, largest first, equal ones in their order: `found` of them in `hits`, which has
   room for `top`. Vectors that are not finite, or of another width, are refused with KB_ARGUMENT. */
KB_API kb_status kb_index_nearest(const kb_index *index, const float *vector, size_t width, size_t top, kb_hit *hits, size_t *found,
                                  kb_message *message);

/* ---- texts that are generated over any network, step by step: what kb_runner_generate does by LiteRT's library ---- */

typedef struct kb_writing kb_writing;

/* Steps that are asked for: step i goes on from state `origins[i]` of those that the last steps gave, in order (at first there is one,
   of the row, or of nothing), with `tokens[i]` at the place `column`, and gives logits and a state. */
typedef struct kb_steps {
  size_t count; /* 0: the text is whole */
  const int32_t *tokens, *origins;
  int32_t column;
  int32_t ended; /* nothing is to come; kb_writing_answer */
  kb_text piece; /* what is new of the text, whole characters, until the next call; where it was asked for */
} kb_steps;

/* A text to generate. text, options: as of kb_runner_generate; told: not 0 where pieces are wanted. The model must stay. */
KB_API kb_status kb_writing_begin(const kb_model *model, kb_text text, kb_text options, int32_t told, kb_writing **writing,
                                  kb_message *message);

/* A text to score, as kb_runner_score does. */
KB_API kb_status kb_writing_score(const kb_model *model, kb_text text, kb_writing **writing, kb_message *message);

/* What a signature of the role encode or prefill reads before the first step; of prefill nothing is read of a row of one token. */
KB_API kb_row kb_writing_row(const kb_writing *writing);

/* The logits of the steps, `size` numbers, [count, vocabulary] (at first, and where none were asked for: NULL, 0) -> what is asked next,
   until the next call. It is called until `steps->ended`. */
KB_API kb_status kb_writing_next(kb_writing *writing, const float *logits, size_t size, kb_steps *steps, kb_message *message);

/* The answer as json, when the text has ended; and typed. Both live until the writing is closed. */
KB_API kb_status kb_writing_answer(kb_writing *writing, kb_text *json, kb_message *message);
KB_API const kb_result *kb_writing_result(const kb_writing *writing);
KB_API void kb_writing_close(kb_writing *writing);

#if !defined(__wasm__) /* there LiteRT.js runs the network: browser/litert.js */

/* An index of a file, which is read where it lies. */
KB_API kb_status kb_index_open_file(const char *path, const kb_model *model, kb_index **index, kb_message *message);


/* One input of a network: [1, count] numbers, int32, or bytes of 0 and 1. */
typedef struct kb_input {
  const char *name; /* in the signature */
  const void *data;
  size_t count;
  int32_t is_bool;
} kb_input;

/* What runs the network of a file. `run` gives the numbers of `output`, float32, flat; they are the network's and stay until its
   next call. `close`, where it is not NULL, is called with the runner's. */
typedef struct kb_network {
  void *context;
  kb_status (*run)(void *context, const char *signature, const kb_input *inputs, size_t count, const char *output, const float **values,
                   size_t *size, kb_message *message);
  void (*close)(void *context);
} kb_network;

/* Settings of a runner. What is 0 is the default. */
typedef struct kb_runner_options {
  const char *library; /* LiteRT's file; by default the program's own functions, then libLiteRt.so (.dylib, LiteRt.dll) */
  int32_t threads;     /* of the network: 1 to 256; 1 by default */
  size_t rows;         /* an input may take: 1 to 1,024, which is the default */
  const char *delegate; /* what computes: "xnnpack" (the processor), the default, or LiteRT's accelerators "gpu", which leaves to the
                           processor what it does not take, and "npu", which takes all or is refused */
} kb_runner_options;

typedef struct kb_runner kb_runner;

/* A .tflite that `kerasbert-mobile compress` wrote, and LiteRT's library behind it: text -> answer. `options` may be NULL. */
KB_API kb_status kb_runner_open(const char *path, const kb_runner_options *options, kb_runner **runner, kb_message *message);

/* The same of bytes, such as an app's asset in memory, which must stay until the runner is closed. */
KB_API kb_status kb_runner_open_bytes(const void *data, size_t size, const kb_runner_options *options, kb_runner **runner,
                                      kb_message *message);

/* The same over another network than LiteRT's library; `options` have neither library nor threads nor delegate. The model must stay. */
KB_API kb_status kb_runner_over(const kb_model *model, const kb_network *network, const kb_runner_options *options,
                                kb_runner **runner, kb_message *message);
KB_API void kb_runner_close(kb_runner *runner);

/* Its model, which lives as long as the runner. */
KB_API const kb_model *kb_runner_model(const kb_runner *runner);

/* The answer of an input as json, which lives until the runner's next call. `texts`, `count`, `words`: as of kb_rows_make. Every row
   runs in the shortest signature that holds it. */
KB_API kb_status kb_runner_answer(kb_runner *runner, const kb_text *texts, size_t count, int32_t words, kb_text *json,
                                  kb_message *message);

/* The same after a prompt of a file of vectors: as of kb_rows_prompted. */
KB_API kb_status kb_runner_prompted(kb_runner *runner, kb_text prompt, const kb_text *texts, size_t count, kb_text *json,
                                    kb_message *message);

/* The same answer typed, until the runner's next call; NULL where it failed, or where there is none. */
KB_API const kb_result *kb_runner_result(const kb_runner *runner);

/* Is told a piece of a text that is generated: whole characters, which live until it returns. Other than 0 ends the text. */
typedef int32_t (*kb_listener)(void *context, kb_text piece);

/* The text that a file of the kind generation (GPT-2, T5, BART ...) generates, as json, which lives until the runner's next call.

   options: a json object over the file's own options, such as {"beams": 4} or {"temperature": 0.8, "top_k": 40, "seed": 7, "max_tokens":
   20}, or nothing: those of `kb.predict`, named and checked as there. The same seed gives the same tokens as in Python.
   told: gets the pieces of the text as its tokens come; joined they are the text. NULL: nobody does. With beams, and several texts, it
   must be NULL: none is known before the end. Where it ends the text the status is KB_CANCELLED. */
KB_API kb_status kb_runner_generate(kb_runner *runner, kb_text text, kb_text options, kb_listener told, void *context, kb_text *json,
                                    kb_message *message);

/* How probable a text is, by a file of a decoder alone (GPT-2), as json: tokens, their log_probabilities, score (the sum), perplexity. The
   first token has none; the text has at least two. kb_runner_result has the tokens as labels. */
KB_API kb_status kb_runner_score(kb_runner *runner, kb_text text, kb_text *json, kb_message *message);

/* Ends the answer that another thread waits for with KB_CANCELLED, within the network too. Without one nothing happens. */
KB_API void kb_runner_cancel(kb_runner *runner);

#endif

#ifdef __cplusplus
}
#endif

#endif
