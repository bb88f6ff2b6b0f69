/* Added tokens: strings that are one token wherever a text holds them. The rules are text/added.py's. */
#include <stdlib.h>

#include "internal.h"

kb_status kb_matcher_open(kb_matcher *matcher, const kb_added *tokens, const kb_text *forms, const uint8_t *taken, size_t count,
                          kb_message *message) {
  kb_word *words = calloc(count + 1, sizeof *words);
  kb_map seen;
  size_t i, pass, kept = 0;
  kb_status status = KB_OK;
  memset(&seen, 0, sizeof seen);
  matcher->tokens = tokens;
  if (words == NULL || !kb_map_open(&seen, count)) status = kb_no_memory(message);
  for (pass = 0; pass < 2 && status == KB_OK; pass++) /* special tokens go first: of equal forms they count */
    for (i = 0; i < count; i++) {
      if (!taken[i] || tokens[i].special != (pass == 0)) continue;
      if (forms[i].size == 0) {
        status = kb_fail(message, KB_DAMAGED, "nothing is left of the added token '%s' after normalisation",
                         kb_show(tokens[i].content).text);
        break;
      }
      if (kb_map_put(&seen, forms[i], (int32_t)i) >= 0) continue;
      words[kept].text = forms[i];
      words[kept++].value = (int32_t)i;
      if ((uint8_t)forms[i].data[0] < 128) matcher->begins[(uint8_t)forms[i].data[0]] = 1;
    }
  matcher->count = kept;
  if (status == KB_OK && kept > 0) status = kb_trie_open(&matcher->trie, words, kept, message);
  kb_map_close(&seen);
  free(words);
  return status;
}

/* The token that codes[at ..] begin with, the longest; -1 without. *end: where it ends. */
static int32_t longest(const kb_matcher *matcher, const uint32_t *codes, size_t at, size_t count, size_t *end) {
  int32_t found = -1;
  uint32_t node = KB_ROOT;
  while (at < count) {
    uint8_t bytes[4];
    size_t i, size = kb_utf8(codes[at++], bytes);
    for (i = 0; i < size; i++) {
      node = kb_step(&matcher->trie, node, bytes[i]);
      if (node == KB_NOWHERE) return found;
    }
    if (matcher->trie.nodes[node].value >= 0) found = matcher->trie.nodes[node].value, *end = at;
  }
  return found;
}

static void push(kb_parts *parts, int32_t id, size_t begin, size_t end) {
  kb_part part;
  part.id = id, part.begin = begin, part.end = end;
  if (!kb_reserve((void **)&parts->data, &parts->room, parts->count + 1, sizeof part)) parts->failed = 1;
  else parts->data[parts->count++] = part;
}

void kb_matcher_split(const kb_matcher *matcher, const uint32_t *codes, size_t count, kb_parts *parts) {
  size_t at = 0, done = 0;
  parts->count = 0;
  if (matcher->count == 0) {
    push(parts, -1, 0, count);
    return;
  }
  while (at < count) {
    size_t begin = at, end = at;
    int32_t number = codes[at] < 128 && !matcher->begins[codes[at]] ? -1 : longest(matcher, codes, at, count, &end);
    const kb_added *token;
    if (number < 0) {
      at++;
      continue;
    }
    token = matcher->tokens + number;
    at = end;
    if (token->single_word && ((begin > 0 && kb_flags(codes[begin - 1]) & KB_F_WORD) ||
                               (end < count && kb_flags(codes[end]) & KB_F_WORD)))
      continue;
    if (token->lstrip) {
      while (begin > 0 && kb_flags(codes[begin - 1]) & KB_F_BLANK) begin--;
      if (begin < done) begin = done;
    }
    if (token->rstrip)
      while (end < count && kb_flags(codes[end]) & KB_F_BLANK) end++;
    if (done < begin) push(parts, -1, done, begin);
    push(parts, token->id, begin, end);
    done = end;
  }
  if (done != count) push(parts, -1, done, count);
}
