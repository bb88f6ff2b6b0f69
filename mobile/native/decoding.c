/* The options of a text that is generated: bundle.json's and a call's, as answers/generation.py and answers/decoding.py read them. */
#include <stdlib.h>

#include "generate.h"

#define MOST_SEED 2147483647L
#define MOST_NUMBER 1000000L

/* A whole number's place, range, and what null is; of_file: no call gives it. */
typedef struct whole { const char *name; size_t place; long least, most, null; int of_file; } whole;
#define AT(field) offsetof(kb_decoding, field)
static const whole wholes[] = {
    {"target_length", AT(target_length), 1, KB_MOST_LENGTH, 0, 1},
    {"max_tokens", AT(max_tokens), 0, KB_MOST_LENGTH, -2, 0},
    {"min_new_tokens", AT(min_new_tokens), 0, KB_MOST_LENGTH, -2, 0},
    {"beams", AT(beams), 1, KB_MOST_BEAMS, -2, 0},
    {"top_k", AT(top_k), 1, MOST_NUMBER * 100, 0, 0},
    {"seed", AT(seed), 0, MOST_SEED, -2, 0},
    {"no_repeat_ngram_size", AT(no_repeat), 0, KB_MOST_LENGTH, -2, 0},
    {"num_return_sequences", AT(sequences), 1, KB_MOST_BEAMS, -2, 0},
    {"forced_bos_token_id", AT(forced_bos), 0, MOST_NUMBER * 100, -1, 0},
    {"forced_eos_token_id", AT(forced_eos), 0, MOST_NUMBER * 100, -1, 0},
};

/* A number's place, and its range: above `least` (or at least it, where `with`) and at most `most`; null: 0 is none. */
typedef struct number { const char *name; size_t place; double least, most; int with, null; } number;
static const number numbers[] = {
    {"length_penalty", AT(length_penalty), -1e6, 1e6, 1, 0},
    {"repetition_penalty", AT(repetition), 0, 1e6, 0, 0},
    {"temperature", AT(temperature), 0, 1e6, 0, 1},
    {"top_p", AT(top_p), 0, 1, 0, 1},
};

void kb_decoding_begin(kb_decoding *how) {
  memset(how, 0, sizeof *how);
  how->separator = kb_literal("\n");
  how->target_length = 64, how->beams = how->sequences = 1;
  how->forced_bos = how->forced_eos = -1;
  how->length_penalty = how->repetition = 1;
  how->start = KB_PAD;
}

void kb_decoding_close(kb_decoding *how) {
  free(how->suppress.data);
  free(how->begin_suppress.data);
  free(how->words.data);
}

static int copied(kb_ints *to, const kb_ints *from) {
  memset(to, 0, sizeof *to);
  if (!kb_ints_room(to, from->count)) return 0;
  if (from->count > 0) memcpy(to->data, from->data, from->count * sizeof *to->data);
  to->count = from->count;
  return 1;
}

kb_status kb_decoding_copy(kb_decoding *to, const kb_decoding *from) {
  *to = *from;
  memset(&to->suppress, 0, sizeof to->suppress), memset(&to->begin_suppress, 0, sizeof to->begin_suppress), memset(&to->words, 0, sizeof to->words);
  return copied(&to->suppress, &from->suppress) && copied(&to->begin_suppress, &from->begin_suppress) && copied(&to->words, &from->words) ? KB_OK : KB_NO_MEMORY;
}

/* ---- reading ---- */

static kb_status out_of(kb_message *message, const char *name, const char *expected) {
  return kb_fail(message, KB_ARGUMENT, "%.40s is out of range, expected %.100s", name, expected);
}

static kb_status read_whole(kb_decoding *how, const whole *w, const kb_json *json, uint32_t node, kb_message *message) {
  long *place = (long *)(void *)((char *)how + w->place), value;
  if (json->nodes[node].type == KB_NULL && w->null > -2) return *place = w->null, KB_OK;
  if (!kb_json_integer(json, node, &value, w->least, w->most))
    return kb_fail(message, KB_ARGUMENT, "%s is out of range, expected a whole number from %ld to %ld", w->name, w->least, w->most);
  return *place = value, KB_OK;
}

static kb_status read_number(kb_decoding *how, const number *n, const kb_json *json, uint32_t node, kb_message *message) {
  double *place = (double *)(void *)((char *)how + n->place), value;
  if (json->nodes[node].type == KB_NULL && n->null) return *place = 0, KB_OK;
  if (!kb_json_number(json, node, &value) || !(n->with ? value >= n->least : value > n->least) || value > n->most)
    return kb_fail(message, KB_ARGUMENT, "%s is out of range, expected a number %s %g, at most %g", n->name, n->with ? "of at least" : "above", n->least, n->most);
  return *place = value, KB_OK;
}

/* Ids of a list -> the end of `ids`. */
static kb_status read_ids(kb_ints *ids, const char *name, const kb_json *json, uint32_t node, kb_message *message) {
  size_t i, count = json->nodes[node].count;
  uint32_t at = node + 1;
  if (json->nodes[node].type != KB_LIST || count > KB_MOST_TOKENS) return out_of(message, name, "a list of ids");
  for (i = 0; i < count; i++, at = json->nodes[at].next) {
    long id;
    if (!kb_json_integer(json, at, &id, 0, MOST_NUMBER * 100)) return out_of(message, name, "a list of ids");
    kb_push_int(ids, (int32_t)id);
  }
  return ids->failed ? kb_no_memory(message) : KB_OK;
}

static kb_status read_words(kb_ints *words, const kb_json *json, uint32_t node, kb_message *message) {
  size_t i;
  uint32_t at = node + 1;
  kb_status status = KB_OK;
  if (json->nodes[node].type != KB_LIST || json->nodes[node].count > KB_MOST_TOKENS) return out_of(message, "bad_words_ids", "a list of lists of ids");
  for (i = 0; i < json->nodes[node].count && status == KB_OK; i++, at = json->nodes[at].next) {
    if (json->nodes[at].type != KB_LIST || json->nodes[at].count == 0) return out_of(message, "bad_words_ids", "a list of lists of ids");
    kb_push_int(words, (int32_t)json->nodes[at].count);
    status = read_ids(words, "bad_words_ids", json, at, message);
  }
  return status;
}

/* A text, true or false, a part of the special tokens, or "never". */
static kb_status read_other(kb_decoding *how, kb_text name, const kb_json *json, uint32_t node, int of_call, kb_message *message) {
  static const char *const parts[] = {"pad", "unk", "cls", "sep", "mask"};
  const kb_json_node *n = json->nodes + node;
  double value;
  int text = n->type == KB_STRING;
  if (kb_is(name, "prefix") || kb_is(name, "separator")) {
    if (!text) return out_of(message, "prefix or separator", "a text");
    *(kb_is(name, "prefix") ? &how->prefix : &how->separator) = n->text;
    return KB_OK;
  }
  if (kb_is(name, "early_stopping")) {
    if (n->type != KB_NULL && n->type != KB_TRUE && n->type != KB_FALSE && !kb_is(n->text, "never")) return out_of(message, "early_stopping", "true, false or never");
    how->early = n->type == KB_TRUE ? 1 : text ? 2 : 0;
    return KB_OK;
  }
  if (kb_is(name, "coverage_penalty"))
    return kb_json_number(json, node, &value) && value == 0 ? KB_OK : out_of(message, "coverage_penalty", "0: the steps of a .tflite do not say what they attend to");
  if (of_call && (kb_is(name, "masked") || kb_is(name, "start") || kb_is(name, "decoder") || kb_is(name, "smoothing")))
    return kb_fail(message, KB_ARGUMENT, "%s is an option of training alone, and the file holds what it made: leave it out", kb_show(name).text);
  if (kb_is(name, "decoder") || kb_is(name, "smoothing")) return KB_OK;
  if (kb_is(name, "masked")) return how->masked = n->type == KB_TRUE, KB_OK;
  if (kb_is(name, "start") && text) {
    how->alone = n->text.size == 0;
    for (how->start = 0; how->start < KB_PARTS && !how->alone && !kb_is(n->text, parts[how->start]); how->start++) continue;
    return how->start < KB_PARTS ? KB_OK : kb_fail(message, KB_UNSUPPORTED, "a file whose texts start with the piece '%s'", kb_show(n->text).text);
  }
  return kb_fail(message, KB_ARGUMENT, "no option '%s' of texts that are generated", kb_show(name).text);
}

static kb_status read_one(kb_decoding *how, kb_text name, const kb_json *json, uint32_t node, int of_call, kb_message *message) {
  size_t i;
  for (i = 0; i < sizeof wholes / sizeof *wholes; i++) {
    if (!kb_is(name, wholes[i].name)) continue;
    if (of_call && wholes[i].of_file)
      return kb_fail(message, KB_ARGUMENT, "target_length is the file's own, %ld: max_tokens says how many tokens are generated", how->target_length);
    return read_whole(how, wholes + i, json, node, message);
  }
  for (i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (kb_is(name, numbers[i].name)) return read_number(how, numbers + i, json, node, message);
  if (kb_is(name, "suppress_tokens")) return how->suppress.count = 0, read_ids(&how->suppress, "suppress_tokens", json, node, message);
  if (kb_is(name, "begin_suppress_tokens")) return how->begin_suppress.count = 0, read_ids(&how->begin_suppress, "begin_suppress_tokens", json, node, message);
  if (kb_is(name, "bad_words_ids")) return how->words.count = 0, read_words(&how->words, json, node, message);
  return read_other(how, name, json, node, of_call, message);
}

kb_status kb_decoding_check(const kb_decoding *how, kb_message *message) {
  if (how->max_tokens > how->target_length)
    return kb_fail(message, KB_ARGUMENT, "max_tokens is %ld, expected 1 to target_length, %ld, or 0 for as many", how->max_tokens, how->target_length);
  if (how->sequences > (how->beams > 1 ? how->beams : 1) && !how->draws)
    return kb_fail(message, KB_ARGUMENT, "num_return_sequences is %ld, expected at most beams, %ld, or tokens that are drawn (temperature, top_k or top_p)", how->sequences, how->beams);
  if ((size_t)how->min_new_tokens >= kb_most_tokens(how))
    return kb_fail(message, KB_ARGUMENT, "min_new_tokens is %ld, expected less than max_tokens, %lu", how->min_new_tokens, (unsigned long)kb_most_tokens(how));
  if (how->beams > 1 && how->draws)
    return kb_fail(message, KB_ARGUMENT, "beams is %ld and temperature, top_k or top_p is given: tokens are drawn for one text at a time, leave out the one or the other", how->beams);
  return KB_OK;
}

kb_status kb_decoding_read(kb_decoding *how, const kb_json *json, uint32_t options, int of_call, kb_message *message) {
  uint32_t i, at = options + 1;
  if (json->nodes[options].type != KB_OBJECT) return kb_fail(message, KB_ARGUMENT, "the options are no json object, expected one such as {\"beams\": 4}");
  for (i = 0; i < json->nodes[options].count; i++, at = json->nodes[at + 1].next) {
    kb_status status = read_one(how, json->nodes[at].text, json, at + 1, of_call, message);
    if (status != KB_OK) return status;
  }
  how->draws = how->temperature > 0 || how->top_k > 0 || how->top_p > 0;
  return kb_decoding_check(how, message);
}
