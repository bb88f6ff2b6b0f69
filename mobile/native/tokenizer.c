/* A tokenizer's files and settings, and its calls: added tokens first, then the kind's own rules, then packing. */
#include <stdlib.h>

#include "internal.h"

static const char *const PARTS[KB_PARTS] = {"pad", "unk", "cls", "sep", "mask"};

const kb_file *kb_file_find(const kb_file *files, size_t count, const char *name) {
  size_t i;
  for (i = 0; i < count; i++)
    if (kb_is(files[i].name, name)) return files + i;
  return NULL;
}

/* ---- vocabularies ---- */

/* Ids of the pieces; refuses what stands there twice. */
static kb_status number(kb_tokenizer *t, kb_message *message) {
  size_t i;
  if (!kb_map_open(&t->ids, t->size)) return kb_no_memory(message);
  for (i = 0; i < t->size; i++)
    if (kb_map_put(&t->ids, t->pieces[i], (int32_t)i) >= 0)
      return kb_fail(message, KB_DAMAGED, "the piece '%s' occurs more than once in the vocabulary", kb_show(t->pieces[i]).text);
  t->special = calloc(t->size, 1);
  t->is_added = calloc(t->size, 1);
  t->absent = calloc(t->size, 1);
  return t->special == NULL || t->is_added == NULL || t->absent == NULL ? kb_no_memory(message) : KB_OK;
}

/* vocab.txt: one piece a line, without blanks at its end; empty lines at the end of the file are none. */
static kb_status read_lines(kb_tokenizer *t, kb_text text, kb_message *message) {
  size_t i, count = 1, at = 0, used = 0;
  if (!kb_valid(text)) return kb_fail(message, KB_DAMAGED, "vocab.txt is not UTF-8");
  for (i = 0; i < text.size; i++) count += text.data[i] == '\n';
  if (count > KB_MOST_PIECES) return kb_fail(message, KB_DAMAGED, "a vocabulary of %lu pieces is too large", (unsigned long)count);
  t->pieces = calloc(count, sizeof *t->pieces);
  t->blob = malloc(text.size + 1);
  if (t->pieces == NULL || t->blob == NULL) return kb_no_memory(message);
  for (i = 0; i < count; i++) {
    size_t end = at, size;
    while (end < text.size && text.data[end] != '\n') end++;
    for (size = end - at; size > 0 && strchr(" \t\r", text.data[at + size - 1]) != NULL && text.data[at + size - 1];) size--;
    memcpy(t->blob + used, text.data + at, size);
    t->pieces[i].data = t->blob + used, t->pieces[i].size = size;
    used += size;
    at = end + 1;
  }
  while (count > 0 && t->pieces[count - 1].size == 0) count--;
  t->size = count;
  return count ? number(t, message) : kb_fail(message, KB_DAMAGED, "the vocabulary is empty");
}

/* vocab.json: piece -> id, the ids 0, 1, ... in any order. */
static kb_status read_object(kb_tokenizer *t, kb_text text, kb_message *message) {
  kb_json json;
  size_t i, used = 0;
  uint32_t at = 1, count;
  kb_status status = kb_json_open(&json, text, "vocab.json", message);
  if (status != KB_OK) return status;
  count = json.nodes[0].type == KB_OBJECT ? json.nodes[0].count : 0;
  if (count == 0 || count > KB_MOST_PIECES) status = kb_fail(message, KB_DAMAGED, "a vocab.json of %lu pieces", (unsigned long)count);
  t->size = count;
  t->pieces = calloc((size_t)count + 1, sizeof *t->pieces);
  t->blob = malloc(text.size + 1);
  if (status == KB_OK && (t->pieces == NULL || t->blob == NULL)) status = kb_no_memory(message);
  for (i = 0; i < count && status == KB_OK; i++, at = json.nodes[at + 1].next) {
    long id;
    kb_text piece = json.nodes[at].text;
    if (!kb_json_integer(&json, at + 1, &id, 0, (long)count - 1) || t->pieces[id].data != NULL)
      status = kb_fail(message, KB_DAMAGED, "the ids of the vocabulary are not 0 to %lu, each once", (unsigned long)count - 1);
    if (status != KB_OK) break;
    memcpy(t->blob + used, piece.data, piece.size);
    t->pieces[id].data = t->blob + used, t->pieces[id].size = piece.size;
    used += piece.size;
  }
  kb_json_close(&json);
  return status == KB_OK ? number(t, message) : status;
}

/* ---- settings ---- */

/* A setting that is true or false; `value` stays where it is absent. */
static kb_status flag(const kb_json *json, uint32_t settings, const char *name, uint8_t *value, kb_message *message) {
  uint32_t node = kb_json_get(json, settings, name);
  if (node == 0) return KB_OK;
  if (json->nodes[node].type != KB_TRUE && json->nodes[node].type != KB_FALSE)
    return kb_fail(message, KB_DAMAGED, "the setting %s is neither true nor false", name);
  *value = json->nodes[node].type == KB_TRUE;
  return KB_OK;
}

/* Refuses settings of other names. */
static kb_status only(const kb_json *json, uint32_t settings, const char *const *names, kb_message *message) {
  uint32_t i, at = settings + 1;
  if (json->nodes[settings].type != KB_OBJECT) return kb_fail(message, KB_DAMAGED, "the tokenizer's settings are no object");
  for (i = 0; i < json->nodes[settings].count; i++, at = json->nodes[at + 1].next) {
    const char *const *name = names;
    while (*name != NULL && !kb_is(json->nodes[at].text, *name)) name++;
    if (*name == NULL)
      return kb_fail(message, KB_UNSUPPORTED, "the tokenizer has the setting '%s', which is not known here",
                     kb_show(json->nodes[at].text).text);
  }
  return KB_OK;
}

/* Ids of the special tokens: by part of `specials`, else the pieces of `usual`. */
static kb_status specials(kb_tokenizer *t, const kb_json *json, uint32_t settings, const char *const *usual, kb_message *message) {
  uint32_t node = settings ? kb_json_get(json, settings, "specials") : 0;
  size_t i;
  for (i = 0; i < KB_PARTS; i++) {
    uint32_t each = node ? kb_json_get(json, node, PARTS[i]) : 0;
    kb_text piece = node ? json->nodes[each].text : kb_literal(usual[i]);
    t->parts[i] = -1;
    if (node && each == 0) {
      if (i == KB_PAD || i == KB_UNK || i == KB_SEP) return kb_fail(message, KB_DAMAGED, "specials name no %s", PARTS[i]);
      continue;
    }
    if (node && json->nodes[each].type != KB_STRING) return kb_fail(message, KB_DAMAGED, "the special token %s is no string", PARTS[i]);
    t->parts[i] = kb_map_find(&t->ids, piece);
    if (t->parts[i] < 0) return kb_fail(message, KB_DAMAGED, "the vocabulary has no %s", kb_show(piece).text);
    t->special[t->parts[i]] = 1;
  }
  return KB_OK;
}

/* A template such as "[CLS] $A [SEP]" -> its items. */
static kb_status template(kb_tokenizer *t, kb_text text, kb_item **items, size_t *count, int texts, kb_message *message) {
  size_t at = 0, room = 0, seen[2] = {0, 0};
  int ordered = 1;
  *count = 0;
  for (;;) {
    kb_text word = {NULL, 0};
    kb_item item = {0, -1, 0};
    size_t digits = 0;
    while (at < text.size && strchr(" \t\n\r\v\f", text.data[at]) != NULL && text.data[at]) at++;
    if (at == text.size) break;
    word.data = text.data + at;
    while (at < text.size && (strchr(" \t\n\r\v\f", text.data[at]) == NULL || !text.data[at])) at++, word.size++;
    while (digits < word.size && word.data[word.size - 1 - digits] >= '0' && word.data[word.size - 1 - digits] <= '9') digits++;
    if (digits > 0 && digits < 3 && digits < word.size && word.data[word.size - 1 - digits] == ':') {
      size_t k;
      for (k = word.size - digits; k < word.size; k++) item.segment = item.segment * 10 + (word.data[k] - '0');
      word.size -= digits + 1;
    }
    if (kb_is(word, "$A") || kb_is(word, "$B")) {
      item.text = word.data[1];
      if (item.text == 'B' && seen[0] == 0) ordered = 0;
      seen[item.text == 'B']++;
    } else {
      item.id = kb_map_find(&t->ids, word);
      if (item.id < 0) return kb_fail(message, KB_DAMAGED, "a template has '%s', which is no piece", kb_show(word).text);
      t->special[item.id] = 1; /* no text gives it */
    }
    if (!kb_reserve((void **)items, &room, *count + 1, sizeof item)) return kb_no_memory(message);
    (*items)[(*count)++] = item;
  }
  if (!ordered || seen[0] != 1 || seen[1] != (size_t)(texts - 1))
    return kb_fail(message, KB_DAMAGED, "a template does not have its texts, each once");
  return KB_OK;
}

static kb_status templates(kb_tokenizer *t, const kb_json *json, uint32_t settings, const char *const *usual, kb_message *message) {
  uint32_t node = settings ? kb_json_get(json, settings, "template") : 0;
  kb_text one = kb_literal(usual[0]), two = kb_literal(usual[1]);
  kb_status status;
  if (node) {
    if (json->nodes[node].type != KB_LIST || json->nodes[node].count != 2 || json->nodes[node + 1].type != KB_STRING ||
        json->nodes[node + 2].type != KB_STRING)
      return kb_fail(message, KB_DAMAGED, "the template is not two strings");
    one = json->nodes[node + 1].text, two = json->nodes[node + 2].text;
  }
  status = template(t, one, &t->single, &t->single_count, 1, message);
  return status == KB_OK ? template(t, two, &t->pair, &t->pair_count, 2, message) : status;
}

/* ---- added tokens ---- */

static kb_status read_one(kb_tokenizer *t, const kb_json *json, uint32_t node, kb_added *token, char **used, kb_message *message) {
  static const char *const names[] = {"content", "single_word", "lstrip", "rstrip", "normalized", "special", "piece", NULL};
  uint8_t *flags[6];
  uint32_t content = kb_json_get(json, node, "content");
  const kb_added *before = t->added;
  int own = 0, twice;
  size_t i;
  kb_status status = only(json, node, names, message);
  flags[0] = &token->single_word, flags[1] = &token->lstrip, flags[2] = &token->rstrip;
  flags[3] = &token->normalized, flags[4] = &token->special, flags[5] = &token->piece;
  for (i = 0; i < 6 && status == KB_OK; i++) status = flag(json, node, names[i + 1], flags[i], message);
  if (status != KB_OK) return status;
  token->id = content && json->nodes[content].type == KB_STRING ? kb_map_find(&t->ids, json->nodes[content].text) : -1;
  twice = token->id >= 0 && t->is_added[token->id];
  for (i = 0; i < KB_PARTS; i++) own |= t->parts[i] == token->id;
  for (; own && before < token; before++) twice |= before->id == token->id;
  if (token->id < 0 || json->nodes[content].text.size == 0 || twice)
    return kb_fail(message, KB_DAMAGED, "an added token is no piece of the vocabulary, or stands there twice");
  token->content.data = *used, token->content.size = json->nodes[content].text.size;
  memcpy(*used, json->nodes[content].text.data, token->content.size);
  *used += token->content.size;
  t->is_added[token->id] = !own;
  t->absent[token->id] = !token->piece;
  if (token->special) t->special[token->id] = 1;
  return KB_OK;
}

static kb_status read_added(kb_tokenizer *t, const kb_json *json, uint32_t settings, kb_message *message) {
  uint32_t node = settings ? kb_json_get(json, settings, "added") : 0, at = node + 1;
  size_t i, bytes = 1;
  char *used;
  kb_status status = KB_OK;
  if (node == 0) return KB_OK;
  if (json->nodes[node].type != KB_LIST) return kb_fail(message, KB_DAMAGED, "added is no list of tokens");
  t->added_count = json->nodes[node].count;
  for (i = 0; i < t->added_count; i++, at = json->nodes[at].next) {
    uint32_t content = kb_json_get(json, at, "content");
    bytes += content ? json->nodes[content].text.size : 0;
  }
  t->added = calloc(t->added_count + 1, sizeof *t->added);
  t->added_blob = used = malloc(bytes);
  if (t->added == NULL || t->added_blob == NULL) return kb_no_memory(message);
  for (i = 0, at = node + 1; i < t->added_count && status == KB_OK; i++, at = json->nodes[at].next)
    status = read_one(t, json, at, t->added + i, &used, message);
  return status;
}

/* The normalised contents, and what finds them. */
static kb_status match_added(kb_tokenizer *t, kb_message *message) {
  kb_text *forms = calloc(t->added_count + 1, sizeof *forms);
  size_t *ends = calloc(t->added_count + 1, sizeof *ends);
  uint8_t *taken = calloc(t->added_count + 1, 1);
  kb_work *w = (kb_work *)kb_tokens_new();
  size_t i, k;
  kb_status status = forms == NULL || ends == NULL || taken == NULL || w == NULL ? kb_no_memory(message) : KB_OK;
  for (i = 0; i < t->added_count && status == KB_OK; i++) {
    forms[i] = t->added[i].content, taken[i] = !t->added[i].normalized;
    if (t->added[i].normalized && t->form != NULL) {
      w->form.count = w->form_starts.count = w->form_ends.count = 0;
      if (!kb_decode(t->added[i].content, &w->codes)) status = kb_no_memory(message);
      if (status == KB_OK) status = t->form(t, w, w->codes.data, w->codes.count, message);
      for (k = 0; k < w->form.count && status == KB_OK; k++) kb_push_utf8(&t->form_blob, w->form.data[k]);
      if (t->form_blob.failed || kb_work_failed(w)) status = kb_no_memory(message);
    }
    ends[i] = t->form_blob.count;
  }
  if (status == KB_OK) status = kb_matcher_open(&t->raw, t->added, forms, taken, t->added_count, message);
  for (i = 0; i < t->added_count && status == KB_OK; i++) {
    size_t begin = i ? ends[i - 1] : 0;
    if (t->added[i].normalized && t->form != NULL)
      forms[i].data = (const char *)t->form_blob.data + begin, forms[i].size = ends[i] - begin;
    taken[i] = t->added[i].normalized;
  }
  if (status == KB_OK) status = kb_matcher_open(&t->normal, t->added, forms, taken, t->added_count, message);
  kb_tokens_free((kb_tokens *)w);
  free(forms);
  free(ends);
  free(taken);
  return status;
}

/* ---- opening ---- */

static const char *const BERT[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
static const char *const ROBERTA[] = {"<pad>", "<unk>", "<s>", "</s>", "<mask>"};
static const char *const GEMMA[] = {"<pad>", "<unk>", "<bos>", "<eos>", "<mask>"};
static const char *const GEMMA_TEMPLATE[] = {"<bos> $A <eos>", "<bos> $A <eos> $B <eos>"};
static const char *const ALBERT[] = {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"};
static const char *const BERT_TEMPLATE[] = {"[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"};
static const char *const ROBERTA_TEMPLATE[] = {"<s> $A </s>", "<s> $A </s> </s> $B </s>"};

/* A file that a kind needs; its content. */
static kb_status needed(const kb_file *files, size_t count, const char *name, kb_text *content, kb_message *message) {
  const kb_file *file = kb_file_find(files, count, name);
  if (file == NULL) return kb_fail(message, KB_DAMAGED, "the tokenizer has no file %s", name);
  *content = file->content;
  return KB_OK;
}

static kb_status open_wordpiece(kb_tokenizer *t, const kb_json *json, uint32_t settings, const kb_file *files, size_t count, kb_message *message) {
  static const char *const names[] = {"lowercase", "strip_accents", "split_cjk", "max_word_chars",
                                      "specials", "template", "added", NULL};
  kb_text vocabulary = {NULL, 0};
  uint32_t node;
  long most = 100;
  kb_status status;
  t->kind = "wordpiece", t->plain = kb_wordpiece_plain, t->formed = kb_wordpiece_formed, t->form = kb_wordpiece_form;
  t->lowercase = t->split_cjk = 1;
  if (settings && (status = only(json, settings, names, message)) != KB_OK) return status;
  if (settings && (status = flag(json, settings, "lowercase", &t->lowercase, message)) != KB_OK) return status;
  t->strip_accents = t->lowercase;
  node = settings ? kb_json_get(json, settings, "strip_accents") : 0;
  if (node && json->nodes[node].type != KB_NULL && (status = flag(json, settings, "strip_accents", &t->strip_accents, message)) != KB_OK)
    return status;
  if (settings && (status = flag(json, settings, "split_cjk", &t->split_cjk, message)) != KB_OK) return status;
  node = settings ? kb_json_get(json, settings, "max_word_chars") : 0;
  if (node && !kb_json_integer(json, node, &most, 1, (1 << 20) - 1))
    return kb_fail(message, KB_DAMAGED, "max_word_chars is no number from 1 to 2^20");
  t->max_word_chars = (size_t)most;
  if ((status = needed(files, count, "vocab.txt", &vocabulary, message)) != KB_OK) return status;
  if ((status = read_lines(t, vocabulary, message)) != KB_OK) return status;
  if ((status = specials(t, json, settings, BERT, message)) != KB_OK) return status;
  if ((status = templates(t, json, settings, BERT_TEMPLATE, message)) != KB_OK) return status;
  if ((status = read_added(t, json, settings, message)) != KB_OK) return status;
  return kb_wordpiece_open(t, message);
}

static kb_status open_bpe(kb_tokenizer *t, const kb_json *json, uint32_t settings, const kb_file *files, size_t count, kb_message *message) {
  static const char *const names[] = {"add_prefix_space", "split", "ignore_merges", "nfc", "specials", "template", "added", NULL};
  uint32_t split;
  kb_text vocabulary = {NULL, 0}, merges = {NULL, 0};
  kb_status status;
  t->plain = t->formed = kb_bpe_plain;
  if (t->metaspace) t->form = kb_metaspace_form;
  if (settings && (status = only(json, settings, t->metaspace ? names + 4 : names, message)) != KB_OK) return status;
  if (settings && (status = flag(json, settings, "add_prefix_space", &t->add_prefix_space, message)) != KB_OK) return status;
  if (settings && (status = flag(json, settings, "ignore_merges", &t->ignore_merges, message)) != KB_OK) return status;
  if (settings && (status = flag(json, settings, "nfc", &t->nfc, message)) != KB_OK) return status;
  if (t->nfc) t->plain = kb_nfc_plain, t->form = kb_nfc_form;
  split = settings ? kb_json_get(json, settings, "split") : 0;
  if (split) {
    const kb_text name = json->nodes[split].text;
    if (json->nodes[split].type != KB_STRING || !(kb_is(name, "gpt2") || kb_is(name, "llama3") || kb_is(name, "qwen2")))
      return kb_fail(message, KB_UNSUPPORTED, "the split '%s', expected gpt2, llama3 or qwen2", kb_show(name).text);
    t->digits = kb_is(name, "gpt2") ? 0 : kb_is(name, "qwen2") ? 1 : 3;
  }
  if ((status = needed(files, count, "vocab.json", &vocabulary, message)) != KB_OK) return status;
  if ((status = needed(files, count, "merges.txt", &merges, message)) != KB_OK) return status;
  if ((status = read_object(t, vocabulary, message)) != KB_OK) return status;
  if ((status = specials(t, json, settings, t->metaspace ? GEMMA : ROBERTA, message)) != KB_OK) return status;
  if ((status = templates(t, json, settings, t->metaspace ? GEMMA_TEMPLATE : ROBERTA_TEMPLATE, message)) != KB_OK) return status;
  if ((status = read_added(t, json, settings, message)) != KB_OK) return status;
  return kb_bpe_open(t, merges, message);
}

static kb_status open_unigram(kb_tokenizer *t, const kb_json *json, uint32_t settings, const kb_file *files, size_t count, kb_message *message) {
  static const char *const names[] = {"specials", "template", "added", NULL};
  kb_text model = {NULL, 0};
  kb_status status;
  t->kind = "unigram", t->plain = kb_unigram_text, t->formed = kb_unigram_formed, t->form = kb_unigram_form;
  if (settings && (status = only(json, settings, names, message)) != KB_OK) return status;
  if ((status = needed(files, count, "spiece.model", &model, message)) != KB_OK) return status;
  if ((status = kb_unigram_pieces(t, model, message)) != KB_OK) return status;
  if ((status = number(t, message)) != KB_OK) return status;
  if ((status = specials(t, json, settings, ALBERT, message)) != KB_OK) return status;
  if ((status = templates(t, json, settings, BERT_TEMPLATE, message)) != KB_OK) return status;
  if ((status = read_added(t, json, settings, message)) != KB_OK) return status;
  if ((status = kb_unigram_open(t, message)) != KB_OK) return status;
  if (t->added_count > 0 && !kb_unigram_plain(t))
    return kb_fail(message, KB_DAMAGED, "added tokens beside a SentencePiece model that keeps blanks or has user-defined pieces");
  return KB_OK;
}

KB_API kb_status kb_tokenizer_open(const kb_file *files, size_t count, kb_tokenizer **tokenizer, kb_message *message) {
  const kb_file *file = kb_file_find(files, count, "tokenizer.json");
  kb_tokenizer *t;
  kb_json json;
  uint32_t kind, settings;
  kb_status status;
  *tokenizer = NULL;
  if (file == NULL) return kb_fail(message, KB_UNSUPPORTED, "a tokenizer without tokenizer.json");
  if (kb_file_find(files, count, "knowledge.bin") != NULL)
    return kb_fail(message, KB_UNSUPPORTED, "a tokenizer with a knowledge graph (K-BERT's sentence trees)");
  status = kb_json_open(&json, file->content, "tokenizer.json", message);
  if (status != KB_OK) return status;
  kind = kb_json_get(&json, 0, "kind"), settings = kb_json_get(&json, 0, "settings");
  t = calloc(1, sizeof *t);
  if (t == NULL) status = kb_no_memory(message);
  else if (kind == 0) status = kb_fail(message, KB_UNSUPPORTED, "a tokenizer.json of others, without kind");
  else if (kb_is(json.nodes[kind].text, "wordpiece")) status = open_wordpiece(t, &json, settings, files, count, message);
  else if (kb_is(json.nodes[kind].text, "bpe")) t->kind = "bpe", status = open_bpe(t, &json, settings, files, count, message);
  else if (kb_is(json.nodes[kind].text, "metaspace_bpe"))
    t->kind = "metaspace_bpe", t->metaspace = 1, status = open_bpe(t, &json, settings, files, count, message);
  else if (kb_is(json.nodes[kind].text, "unigram")) status = open_unigram(t, &json, settings, files, count, message);
  else status = kb_fail(message, KB_UNSUPPORTED, "a tokenizer of kind '%s', expected wordpiece, bpe, metaspace_bpe or unigram", kb_show(json.nodes[kind].text).text);
  kb_json_close(&json);
  if (status == KB_OK) t->stamp = kb_stamp(files, count);
  if (status == KB_OK && t->added_count > 0) status = match_added(t, message);
  if (status == KB_OK) *tokenizer = t;
  else kb_tokenizer_close(t);
  return status;
}

KB_API void kb_tokenizer_close(kb_tokenizer *t) {
  if (t == NULL) return;
  kb_unigram_close(t);
  kb_trie_close(&t->trie);
  kb_trie_close(&t->raw.trie);
  kb_trie_close(&t->normal.trie);
  kb_map_close(&t->ids);
  free(t->form_blob.data);
  free(t->blob);
  free(t->pieces);
  free(t->single);
  free(t->pair);
  free(t->added);
  free(t->added_blob);
  free(t->special);
  free(t->is_added);
  free(t->absent);
  free(t->merges);
  free(t->lengths);
  free(t);
}
