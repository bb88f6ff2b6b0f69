/* A double array of strings. */
#include <stdlib.h>

#include "internal.h"

#define BLOCK 256u
#define WINDOW 8192u /* nodes at the end in which a free place is looked for, */
#define TRIES 96     /* and how many places: what bounds the work of a node */
#define NONE 0xffffffffu
#define TAKEN_ROOT 0xfffffffeu

typedef struct range {
  size_t begin, end, depth;
  uint32_t node;
} range;

typedef struct builder {
  kb_trie *trie;
  size_t room;
  range *stack;
  size_t stack_count, stack_room;
  uint32_t first, last; /* free nodes: a list whose links stand in `base` (before) and `value` (after) */
} builder;

static int compare(const void *left, const void *right) {
  const kb_text *a = &((const kb_word *)left)->text, *b = &((const kb_word *)right)->text;
  int order = memcmp(a->data, b->data, a->size < b->size ? a->size : b->size);
  return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* One more block of free nodes. */
static int grow(builder *b) {
  size_t i, count = b->trie->count + BLOCK;
  if (count >= (size_t)INT32_MAX || !kb_reserve((void **)&b->trie->nodes, &b->room, count, sizeof(kb_node))) return 0;
  for (i = b->trie->count; i < count; i++) {
    kb_node *node = b->trie->nodes + i;
    node->parent = KB_NOWHERE, node->base = b->last, node->value = -1;
    if (b->last != NONE) b->trie->nodes[b->last].value = (int32_t)i;
    else b->first = (uint32_t)i;
    b->last = (uint32_t)i;
  }
  b->trie->count = count;
  return 1;
}

/* Takes a node off the list of free ones. */
static void take(builder *b, uint32_t at) {
  kb_node *nodes = b->trie->nodes;
  uint32_t before = nodes[at].base, after = (uint32_t)nodes[at].value;
  if (before != NONE) nodes[before].value = (int32_t)after;
  else b->first = after;
  if (after != NONE) nodes[after].base = before;
  else b->last = before;
  nodes[at].base = 0, nodes[at].value = -1;
}

/* A base whose nodes for all labels are free; 0 where there is no memory. */
static uint32_t find_base(builder *b, const uint8_t *labels, size_t count) {
  uint32_t at;
  size_t i, tries;
  while (b->first != NONE && b->first + WINDOW < b->trie->count) take(b, b->first); /* stays free and is not looked at again */
  for (at = b->first, tries = 0; at != NONE && tries < TRIES; at = (uint32_t)b->trie->nodes[at].value, tries++) {
    uint32_t base = at ^ labels[0];
    if (base == 0) continue;
    for (i = 1; i < count && b->trie->nodes[base ^ labels[i]].parent == KB_NOWHERE; i++) continue;
    if (i == count) return base;
  }
  at = (uint32_t)b->trie->count;
  return grow(b) ? at : 0; /* a block of its own */
}

static int push(builder *b, size_t begin, size_t end, size_t depth, uint32_t node) {
  range made;
  if (!kb_reserve((void **)&b->stack, &b->stack_room, b->stack_count + 1, sizeof *b->stack)) return 0;
  made.begin = begin, made.end = end, made.depth = depth, made.node = node;
  b->stack[b->stack_count++] = made;
  return 1;
}

/* Whether a free node is still on the list. */
static int listed(const builder *b, uint32_t at) { return b->first != NONE && at >= b->first; }

/* Gives the words of a range, equal up to their depth, a node for each next byte. */
static int expand(builder *b, const kb_word *words, range r) {
  uint8_t labels[256];
  size_t starts[257], count = 0, i;
  uint32_t base;
  for (i = r.begin; i < r.end; i++) {
    uint8_t byte;
    if (words[i].text.size == r.depth) {
      b->trie->nodes[r.node].value = words[i].value;
      continue;
    }
    byte = (uint8_t)words[i].text.data[r.depth];
    if (count == 0 || labels[count - 1] != byte) labels[count] = byte, starts[count++] = i;
  }
  if (count == 0) return 1;
  starts[count] = r.end;
  base = find_base(b, labels, count);
  if (base == 0) return 0;
  b->trie->nodes[r.node].base = base;
  for (i = 0; i < count; i++) {
    uint32_t child = base ^ labels[i];
    if (listed(b, child)) take(b, child);
    b->trie->nodes[child].parent = r.node;
  }
  for (i = count; i-- > 0;)
    if (!push(b, starts[i], starts[i + 1], r.depth + 1, base ^ labels[i])) return 0;
  return 1;
}

kb_status kb_trie_open(kb_trie *trie, kb_word *words, size_t count, kb_message *message) {
  builder b;
  int good;
  memset(&b, 0, sizeof b);
  memset(trie, 0, sizeof *trie);
  b.trie = trie, b.first = b.last = NONE;
  if (count > 0) qsort(words, count, sizeof *words, compare);
  good = grow(&b) && push(&b, 0, count, 0, KB_ROOT);
  if (good) take(&b, KB_ROOT), trie->nodes[KB_ROOT].parent = TAKEN_ROOT;
  while (good && b.stack_count > 0) good = expand(&b, words, b.stack[--b.stack_count]);
  free(b.stack);
  while (good && b.first != NONE) take(&b, b.first);
  if (good) return KB_OK;
  kb_trie_close(trie);
  return kb_no_memory(message);
}

void kb_trie_close(kb_trie *trie) {
  free(trie->nodes);
  memset(trie, 0, sizeof *trie);
}
