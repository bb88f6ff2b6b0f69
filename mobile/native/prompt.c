/* A file that generates: its options, and the row that is read of a source. answers/generation.py's rules. */
#include <stdlib.h>

#include "generate.h"

/* ---- the model ---- */

void kb_generation_close(kb_model *m) {
  if (m->generation != NULL) kb_decoding_close(m->generation);
  free(m->generation);
}

/* Prefix and separator stand in the json, which is closed: both are copied into m->prompt. */
static int keep_texts(kb_model *m) {
  kb_decoding *how = m->generation;
  kb_text both[2];
  char *at;
  both[0] = how->prefix, both[1] = how->separator;
  at = m->prompt = malloc(both[0].size + both[1].size + 1);
  if (at == NULL) return 0;
  m->prompt_size = both[0].size + both[1].size;
  if (both[0].size > 0) memcpy(at, both[0].data, both[0].size);
  how->prefix.data = at, at += both[0].size;
  if (both[1].size > 0) memcpy(at, both[1].data, both[1].size);
  how->separator.data = at;
  return 1;
}

static kb_text role_of(const kb_json *json, uint32_t signature) {
  static const kb_text none = {"", 0};
  uint32_t node = kb_json_get(json, signature, "role");
  return node && json->nodes[node].type == KB_STRING ? json->nodes[node].text : none;
}

/* The longest row, of the signatures: of a source, or of a prompt and what is generated behind it. */
static kb_status read_lengths(kb_model *m, const kb_json *json, kb_message *message) {
  static const char *const roles[] = {"encode", "prefill", "decode_step", NULL}, *const axes[] = {"S", "P", "T"};
  uint32_t node = kb_json_get(json, 0, "signatures"), at = node + 1, i;
  size_t longest[3] = {0, 0, 0};
  if (node == 0 || json->nodes[node].type != KB_LIST) return kb_fail(message, KB_DAMAGED, "the bundle has no list of signatures");
  for (i = 0; i < json->nodes[node].count; i++, at = json->nodes[at].next) {
    uint32_t lengths = kb_json_get(json, at, "lengths"), each;
    kb_text role = role_of(json, at);
    size_t k = 0;
    long length = 0;
    while (roles[k] != NULL && !kb_is(role, roles[k])) k++;
    if (roles[k] == NULL) return kb_fail(message, KB_UNSUPPORTED, "a file with a signature of the role '%s'", kb_show(role).text);
    each = lengths ? kb_json_get(json, lengths, axes[k]) : 0;
    if (each == 0 || !kb_json_integer(json, each, &length, 1, KB_MOST_LENGTH)) return kb_fail(message, KB_DAMAGED, "a signature's length is not 1 to %d", KB_MOST_LENGTH);
    if ((size_t)length > longest[k]) longest[k] = (size_t)length;
  }
  if (longest[2] == 0 || (longest[0] > 0) == (longest[1] > 0) || (longest[1] > 0) != (m->generation->alone || m->generation->masked))
    return kb_fail(message, KB_DAMAGED, "the bundle's signatures are not encode or prefill with decode_step");
  m->longest = longest[1] ? longest[2] : longest[0];
  if (longest[0] && (size_t)m->generation->target_length > longest[2]) return kb_fail(message, KB_DAMAGED, "the bundle's steps have fewer places than its texts tokens");
  return KB_OK;
}

kb_status kb_generation_read(kb_model *m, const kb_json *json, kb_message *message) {
  uint32_t options = kb_json_get(json, 0, "options");
  kb_status status = KB_OK;
  m->generation = malloc(sizeof *m->generation);
  if (m->generation == NULL) return kb_no_memory(message);
  kb_decoding_begin(m->generation);
  if (options) status = kb_decoding_read(m->generation, json, options, 0, message);
  if (status == KB_OK && !keep_texts(m)) status = kb_no_memory(message);
  return status == KB_OK ? read_lengths(m, json, message) : status;
}

/* ---- the row ---- */

/* Whether a text holds nothing to read (blanks.py): white space, control and format characters alone. */
static int is_nothing(const kb_codes *codes) {
  size_t i;
  for (i = 0; i < codes->count; i++) {
    uint32_t c = codes->data[i];
    int dropped = (kb_flags(c) & KB_F_DROP) && !(c >= 0xD800 && c <= 0xF8FF) && c != 0xFFFD && !(c >= 0xF0000);
    if (!kb_is_blank(c) && !dropped) return 0;
  }
  return 1;
}

/* Tokens of a source in a row, beside those of the target and `taken` more. */
static kb_status room_of(const kb_model *m, const kb_decoding *how, size_t taken, size_t *room, kb_message *message) {
  size_t other = (size_t)how->target_length + taken;
  *room = m->longest > other ? m->longest - other : 0;
  return *room ? KB_OK : kb_fail(message, KB_ARGUMENT, "%lu tokens have no room for a source beside %ld of a target and %lu more", (unsigned long)m->longest, how->target_length, (unsigned long)taken);
}

/* Source with its special tokens, of an encoder that writes at [MASK]s. */
static kb_status masked_row(kb_rows *rows, const kb_decoding *how, kb_text source, kb_message *message) {
  const kb_tokenizer *t = rows->model->tokenizer;
  kb_tokens *tokens = &rows->work->view;
  size_t special = t->single_count - 1, room;
  kb_status status = room_of(rows->model, how, special, &room, message);
  if (status == KB_OK) status = kb_pack(t, source, NULL, special + room, tokens, message);
  return status == KB_OK ? kb_row_of(rows, tokens->ids, tokens->count, tokens->truncated, message) : status;
}

/* Source and separator, of a decoder alone; a source that is gone on from loses its beginning. */
static kb_status joined_row(kb_rows *rows, const kb_decoding *how, kb_text source, kb_message *message) {
  const kb_tokenizer *t = rows->model->tokenizer;
  kb_tokens *tokens = &rows->work->view;
  kb_ints separator;
  size_t room = 0, i, kept, lost;
  kb_status status = kb_encode(t, how->separator, tokens, message);
  memset(&separator, 0, sizeof separator);
  for (i = 0; status == KB_OK && i < tokens->count; i++) kb_push_int(&separator, tokens->ids[i]);
  if (separator.failed) status = kb_no_memory(message);
  if (status == KB_OK && separator.count == 0 && how->separator.size > 0)
    status = kb_fail(message, KB_ARGUMENT, "the separator has no token, expected a text that the tokenizer reads (option separator), or nothing, where a source is gone on from");
  if (status == KB_OK) status = room_of(rows->model, how, separator.count, &room, message);
  if (status == KB_OK) status = kb_encode(t, source, tokens, message);
  if (status == KB_OK) {
    kb_ints ids;
    memset(&ids, 0, sizeof ids);
    kept = tokens->count < room ? tokens->count : room;
    lost = how->separator.size > 0 ? 0 : tokens->count - kept;
    for (i = 0; i < kept; i++) kb_push_int(&ids, tokens->ids[lost + i]);
    for (i = 0; i < separator.count; i++) kb_push_int(&ids, separator.data[i]);
    if (ids.failed) status = kb_no_memory(message);
    else if (ids.count == 0) status = kb_fail(message, KB_ARGUMENT, "a source has no tokens, expected a text to write from");
    else status = kb_row_of(rows, ids.data, ids.count, tokens->count > room, message);
    free(ids.data);
  }
  free(separator.data);
  return status;
}

kb_status kb_prompt_row(kb_rows *rows, const kb_decoding *how, kb_text text, kb_message *message) {
  kb_text source;
  char *joined;
  kb_status status;
  if (!kb_decode(text, &rows->text)) return kb_no_memory(message);
  if (is_nothing(&rows->text)) return kb_fail(message, KB_ARGUMENT, "a source is empty, expected a text to write from");
  joined = malloc(how->prefix.size + text.size + 1);
  if (joined == NULL) return kb_no_memory(message);
  if (how->prefix.size > 0) memcpy(joined, how->prefix.data, how->prefix.size);
  memcpy(joined + how->prefix.size, text.data, text.size);
  source.data = joined, source.size = how->prefix.size + text.size;
  status = how->masked ? masked_row(rows, how, source, message) : how->alone ? joined_row(rows, how, source, message) : kb_row_pack(rows, source, NULL, message);
  free(joined);
  return status;
}

kb_status kb_prompt_rows(kb_rows *rows, const kb_text *texts, size_t count, int words, kb_message *message) {
  (void)words;
  if (count != 1) return kb_fail(message, KB_ARGUMENT, "received %lu texts, expected 1", (unsigned long)count);
  return kb_prompt_row(rows, rows->model->generation, texts[0], message);
}

kb_status kb_prompt_answer(kb_rows *rows, const float *const *outputs, const size_t *sizes, kb_message *message) {
  (void)rows, (void)outputs, (void)sizes;
  return kb_fail(message, KB_UNSUPPORTED, "a generation from outputs: its texts come step by step (kb_writing_begin)");
}
