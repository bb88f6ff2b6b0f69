/* Under sanitizers. generate FILE LIBRARY: a line of stdin is options, a text and after how many pieces it ends (0: never), the first two
   in hexadecimal digits ("-": nothing); the answer goes to stdout. generate SECONDS SEED: searches over random numbers
   with random options, some damaged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generate.h"

/* ---- a file ---- */

typedef struct heard { long count, most; kb_bytes bytes; } heard;

static int32_t hear(void *context, kb_text piece) {
  heard *h = context;
  kb_push_bytes(&h->bytes, piece.data, piece.size);
  if (!kb_valid(piece)) puts("error a piece is no UTF-8");
  return ++h->count == h->most;
}

static unsigned digit(char c) { return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10); }

static kb_text word(char *hex) {
  kb_text text = {hex, strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2};
  size_t i;
  for (i = 0; i < text.size; i++) hex[i] = (char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return text;
}

static int ask(const char *file, const char *library) {
  kb_runner_options settings;
  kb_runner *runner;
  kb_message message;
  char *line = NULL;
  size_t room = 0;
  memset(&settings, 0, sizeof settings);
  settings.library = library;
  if (kb_runner_open(file, &settings, &runner, &message) != KB_OK) return printf("error %s\n", message.text), 0;
  while (getline(&line, &room, stdin) > 0) {
    char *options = strtok(line, " \n"), *text = strtok(NULL, " \n"), *most = strtok(NULL, " \n");
    heard h;
    kb_text json;
    kb_status status;
    memset(&h, 0, sizeof h);
    h.most = atol(most);
    status = kb_runner_generate(runner, word(text), word(options), strstr(most, "-") ? NULL : hear, &h, &json, &message);
    if (status != KB_OK) printf("error %d %s\n", (int)status, message.text);
    else printf("%.*s\n", (int)json.size, json.data);
    free(h.bytes.data);
  }
  free(line);
  kb_runner_close(runner);
  return 0;
}

/* ---- searches ---- */

static unsigned long long state;

static unsigned draw(unsigned below) { /* xorshift64* */
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return (unsigned)((state * 0x2545F4914F6CDD1Du) >> 33) % below;
}

/* Logits of a vocabulary of `width` tokens for what is asked of `live` states; some are odd, or too few. */
static size_t logits_of(const kb_asked *asked, size_t live, size_t width, float *logits) {
  size_t i, size = asked->count * width;
  float odd[] = {0, -0.0f, 1e30f, -1e30f, (float)INFINITY, -(float)INFINITY, (float)NAN};
  for (i = 0; i < asked->count; i++)
    if (asked->tokens[i] < 0 || asked->origins[i] < 0 || (size_t)asked->origins[i] >= live) abort();
  for (i = 0; i < size; i++) logits[i] = (float)draw(2000) / 300 - 3;
  if (draw(40) == 0) logits[draw((unsigned)size)] = odd[draw(sizeof odd / sizeof *odd)];
  if (draw(60) == 0) /* all equal */
    for (i = 0; i < size; i++) logits[i] = 1;
  return draw(500) == 0 ? size / 2 : draw(500) == 0 ? 0 : size;
}

/* 1: it ended. */
static int search(const kb_decoding *how, size_t width, kb_message *message) {
  int32_t prompt[5] = {1, 2, 1, 2, 7};
  size_t i, live = 1, count = (size_t)(how->beams > 1 ? how->beams : how->sequences);
  kb_search *s;
  kb_status status = kb_search_open(how, (int32_t)draw((unsigned)width), prompt, 1 + draw(5), &s, message);
  kb_asked asked;
  if (status != KB_OK) exit(2);
  while (status == KB_OK && (asked = kb_search_asked(s)).count > 0) {
    float *logits = malloc(asked.count * width * sizeof *logits); /* of its own size, so that reading more is seen */
    size_t size;
    if (logits == NULL) exit(2);
    size = logits_of(&asked, live, width, logits);
    live = asked.count;
    status = kb_search_push(s, logits, size, message);
    free(logits);
    if (draw(300) == 0) status = KB_CANCELLED;
  }
  for (i = 0; i < count; i++)
    if (kb_search_texts(s)[i].count > kb_most_tokens(how)) abort();
  kb_search_close(s);
  return status == KB_OK;
}

static void put(kb_bytes *json, const char *name, const char *value) {
  kb_put(json, json->count > 1 ? ", \"" : "\"");
  kb_put(json, name);
  kb_put(json, "\": ");
  kb_put(json, value);
}

/* Some options, most of which can be. */
static void options(kb_bytes *json) {
  static const char *const some[][6] = {
      {"beams", "1", "2", "5", "256", "0"},          {"temperature", "0.7", "1e-30", "3", "null", "-1"}, {"top_k", "1", "5", "1000000", "null", "0"},
      {"top_p", "0.1", "0.9", "1", "1e-9", "0"},     {"max_tokens", "0", "1", "7", "12", "13"},          {"min_new_tokens", "0", "1", "5", "11", "12"},
      {"repetition_penalty", "1.3", "0.5", "1", "1000000", "0"}, {"no_repeat_ngram_size", "0", "1", "2", "3", "65536"}, {"seed", "0", "1", "2147483647", "7", "-1"},
      {"length_penalty", "0", "1", "-2", "1000000", "[]"}, {"early_stopping", "true", "false", "\"never\"", "null", "3"}, {"num_return_sequences", "1", "2", "5", "256", "0"},
      {"suppress_tokens", "[]", "[0, 1, 2]", "[3]", "[4000]", "[[]]"}, {"begin_suppress_tokens", "[]", "[0, 1]", "[2]", "[99999]", "{}"},
      {"bad_words_ids", "[]", "[[1], [2, 3], [4, 5, 6]]", "[[0, 0]]", "[[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]]", "[[]]"},
      {"forced_bos_token_id", "0", "3", "null", "5000", "-1"}, {"forced_eos_token_id", "0", "3", "null", "5000", "-1"}, {"separator", "\"\"", "\"\\n\"", "\" x\"", "\"\\u0000\"", "1"}};
  unsigned count = draw(6), i;
  json->count = 0;
  kb_put(json, "{");
  for (i = 0; i < count; i++) {
    unsigned which = draw(sizeof some / sizeof *some);
    put(json, some[which][0], some[which][draw(20) == 0 ? 5 : 1 + draw(4)]);
  }
  kb_put(json, "}");
  if (draw(10) == 0) json->data[draw((unsigned)json->count)] = (uint8_t)draw(256);
}

static void one(kb_bytes *text, unsigned long *searched) {
  kb_decoding first, how;
  kb_json json;
  kb_message message;
  kb_text said;
  memset(&json, 0, sizeof json);
  kb_decoding_begin(&first);
  first.target_length = 12;
  if (kb_decoding_copy(&how, &first) != KB_OK) exit(2);
  options(text);
  said.data = (const char *)text->data, said.size = text->count;
  if (kb_json_open(&json, said, "options", &message) == KB_OK && kb_decoding_read(&how, &json, 0, (int)draw(2), &message) == KB_OK) {
    size_t width = draw(20) == 0 ? 3000 : 1 + draw(40);
    *searched += (unsigned long)search(&how, width, &message);
  }
  kb_decoding_close(&how);
  kb_decoding_close(&first);
  kb_json_close(&json);
}

int main(int count, char **arguments) {
  unsigned long runs = 0, searched = 0;
  kb_bytes text;
  char *end;
  double seconds;
  if (count != 3) return 2;
  seconds = strtod(arguments[1], &end);
  if (*end != 0) return ask(arguments[1], arguments[2]);
  memset(&text, 0, sizeof text);
  state = strtoull(arguments[2], NULL, 10) * 2 + 1;
  while ((double)clock() / CLOCKS_PER_SEC < seconds) one(&text, &searched), runs++;
  free(text.data);
  printf("%lu runs, %lu of them to the end of their texts\n", runs, searched);
  return 0;
}
