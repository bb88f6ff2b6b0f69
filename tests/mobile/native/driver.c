/* Follows a script (script.py) from stdin, a line at a time. The core's answers go to stdout as lines of json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kerasbert.h"

#define MOST 4096 /* words of a line */

static kb_message message;
static kb_text words[MOST];
static size_t count;

static void *checked(void *memory) {
  if (memory == NULL) exit(3);
  return memory;
}

static int failed(kb_status status) {
  if (status != KB_OK) printf("error %s\n", message.text);
  return status != KB_OK;
}

static unsigned digit(char c) { return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10); }

/* Splits a line into words; from the second on hexadecimal digits become bytes, in place. `plain`: words that stay as they are. */
static void split(char *line, size_t plain) {
  char *next = strtok(line, " \n");
  for (count = 0; next != NULL && count < MOST; next = strtok(NULL, " \n"), count++) {
    size_t size = strlen(next), i;
    words[count].data = next, words[count].size = size;
    if (count <= plain) continue;
    words[count].size = strcmp(next, "-") == 0 ? 0 : size / 2;
    for (i = 0; i < words[count].size; i++) next[i] = (char)(digit(next[2 * i]) << 4 | digit(next[2 * i + 1]));
    if (words[count].size > 0) next[i] = 0; /* a path is a string */
  }
}

static void numbers(const int32_t *values, size_t size, const char *end) {
  size_t i;
  putchar('[');
  for (i = 0; i < size; i++) printf(i ? ",%ld" : "%ld", (long)values[i]);
  printf("]%s", end);
}

static void input(const kb_model *model, kb_rows **rows) {
  size_t i;
  kb_rows_free(*rows);
  *rows = NULL;
  if (failed(kb_rows_make(model, words + 2, count - 2, words[1].data[0] == '1', rows, &message))) return;
  putchar('[');
  for (i = 0; i < kb_rows_count(*rows); i++) {
    kb_row row = kb_rows_row(*rows, i);
    printf(i ? ",[" : "[");
    numbers(row.ids, row.length, ",");
    numbers(row.segments, row.length, ",");
    printf("%ld,%s]", (long)row.position, row.truncated ? "true" : "false");
  }
  printf("]\n");
}

static void answer(const kb_model *model, kb_rows *rows) {
  const float **outputs = checked(calloc(count, sizeof *outputs));
  size_t *sizes = checked(calloc(count, sizeof *sizes)), i;
  kb_text json;
  for (i = 1; i < count; i++) { /* a word may begin anywhere, a float may not */
    float *copy = checked(malloc(words[i].size + 1));
    memcpy(copy, words[i].data, words[i].size);
    outputs[i - 1] = copy, sizes[i - 1] = words[i].size / sizeof(float);
  }
  if (!failed(kb_answer(model, rows, outputs, sizes, &json, &message))) printf("%.*s\n", (int)json.size, json.data);
  for (i = 1; i < count; i++) free((void *)outputs[i - 1]);
  free(outputs);
  free(sizes);
}

static void texts(const kb_tokenizer *tokenizer, kb_tokens *tokens) {
  if (failed(kb_tokenize(tokenizer, words[1], tokens, &message))) return;
  putchar('[');
  numbers(tokens->ids, tokens->count, ",");
  numbers(tokens->starts, tokens->count, ",");
  numbers(tokens->ends, tokens->count, ",");
  if (failed(kb_encode(tokenizer, words[1], tokens, &message))) return;
  numbers(tokens->ids, tokens->count, "]\n");
}

static void pack(const kb_tokenizer *tokenizer, kb_tokens *tokens) {
  const kb_text *second = count > 3 ? words + 3 : NULL;
  if (failed(kb_pack(tokenizer, words[2], second, (size_t)atol(words[1].data), tokens, &message))) return;
  putchar('[');
  numbers(tokens->ids, tokens->count, ",");
  numbers(tokens->segments, tokens->count, ",");
  printf("%s]\n", tokens->truncated ? "true" : "false");
}

static void open_tokenizer(kb_tokenizer **tokenizer) {
  kb_file files[MOST / 2];
  size_t i;
  for (i = 0; i < count / 2; i++) files[i].name = words[1 + 2 * i], files[i].content = words[2 + 2 * i];
  kb_tokenizer_close(*tokenizer);
  *tokenizer = NULL;
  failed(kb_tokenizer_open(files, count / 2, tokenizer, &message));
}

static void open_model(kb_model **model, kb_rows **rows) {
  kb_rows_free(*rows);
  kb_model_close(*model);
  *rows = NULL, *model = NULL;
  if (!failed(kb_model_open(words[1].data, words[1].size, model, &message)))
    printf("[\"%s\",%lu]\n", kb_model_kind(*model), (unsigned long)kb_model_longest(*model));
}

static void open_runner(kb_runner **runner) {
  kb_runner_options options;
  memset(&options, 0, sizeof options);
  options.rows = (size_t)atol(words[1].data), options.library = words[3].size ? words[3].data : NULL;
  kb_runner_close(*runner);
  if (!failed(kb_runner_open(words[2].data, &options, runner, &message))) printf("\"%s\"\n", kb_model_kind(kb_runner_model(*runner)));
}

static void ask(kb_runner *runner) {
  kb_text json;
  if (runner == NULL) printf("error no runner\n");
  else if (!failed(kb_runner_answer(runner, words + 2, count - 2, words[1].data[0] == '1', &json, &message)))
    printf("%.*s\n", (int)json.size, json.data);
}

int main(void) {
  char *line = NULL;
  size_t room = 0;
  kb_tokenizer *tokenizer = NULL;
  kb_model *model = NULL;
  kb_rows *rows = NULL;
  kb_runner *runner = NULL;
  kb_tokens *tokens = checked(kb_tokens_new());
  while (getline(&line, &room, stdin) > 0) {
    split(line, strncmp(line, "input", 5) == 0 || strncmp(line, "pack", 4) == 0 || strncmp(line, "runner", 6) == 0 || strncmp(line, "ask", 3) == 0);
    if (strcmp(words[0].data, "tokenizer") == 0) open_tokenizer(&tokenizer);
    else if (strcmp(words[0].data, "text") == 0) texts(tokenizer, tokens);
    else if (strcmp(words[0].data, "pack") == 0) pack(tokenizer, tokens);
    else if (strcmp(words[0].data, "model") == 0) open_model(&model, &rows);
    else if (strcmp(words[0].data, "input") == 0) input(model, &rows);
    else if (strcmp(words[0].data, "answer") == 0) answer(model, rows);
    else if (strcmp(words[0].data, "runner") == 0) open_runner(&runner);
    else if (strcmp(words[0].data, "ask") == 0) ask(runner);
    else return 2;
  }
  free(line);
  kb_rows_free(rows);
  kb_runner_close(runner);
  kb_model_close(model);
  kb_tokenizer_close(tokenizer);
  kb_tokens_free(tokens);
  return 0;
}
