/* Words of which unigram's best path is remembered: where no piece goes over a blank, a text's path is that of its words. */
#include <math.h>
#include <stdlib.h>

#include "unigram.h"

size_t kb_word_length(const uint8_t *s, size_t size) {
  size_t i;
  for (i = 1; i < size; i++)
    if (s[i] == 0xE2 && size - i >= 3 && s[i + 1] == 0x96 && s[i + 2] == 0x81) return i;
  return size;
}

#ifndef KB_MEMOS
#define KB_MEMOS 32768 /* a power of 2; 3 MB, of which a text takes what its words need. The fuzzer has fewer, so that they run out */
#endif
enum { LONGEST = 30, MOST_IDS = 8, WAYS = 4, MEMOS = KB_MEMOS };

/* A word, its pieces and where they end, its score, and how low the text's score may be for them to hold. */
typedef struct memo { double score, limit; int32_t ids[MOST_IDS]; uint8_t size, count, ends[MOST_IDS], word[LONGEST]; } memo;

/* They lie in sets of WAYS, by a hash of the word; a tag, 0 of none, is another part of it. */
struct kb_memos { uint32_t tags[MEMOS], turn; memo memos[MEMOS]; };

/* A place in a word: the best way to it, and by how much it beat another. */
typedef struct place { double best, gap; size_t begin; int32_t id; } place;

static void reach(place *to, double score, size_t begin, int32_t id) {
  if (score > to->best) to->gap = score - to->best, to->best = score, to->begin = begin, to->id = id;
  else if (to->best - score < to->gap) to->gap = to->best - score;
}

/* text/viterbi.py's `best` of a word, in double precision. 0: too many pieces, or unknown ones that may go on outside of it. */
static int remember(const kb_tokenizer *t, const uint8_t *s, size_t n, memo *made) {
  place at[LONGEST + 1];
  const kb_node *nodes = t->trie.nodes;
  int32_t unknown = t->parts[KB_UNK];
  double gap = HUGE_VAL;
  size_t begin, i, end;
  for (i = 0; i <= n; i++) at[i].best = -HUGE_VAL, at[i].gap = HUGE_VAL, at[i].begin = 0, at[i].id = -1;
  at[0].best = 0;
  for (begin = 0; begin < n; begin += kb_width(s[begin])) {
    size_t one = begin + kb_width(s[begin]);
    uint32_t node = KB_ROOT;
    int single = 0;
    for (i = begin; i < n; i++) {
      node = kb_step(&t->trie, node, s[i]);
      if (node == KB_NOWHERE) break;
      if (nodes[node].value < 0) continue;
      single |= i + 1 == one;
      reach(at + i + 1, t->unigram->scores[nodes[node].value] + at[begin].best, begin, nodes[node].value);
    }
    if (single) continue;
    if (begin == 0 || one > n || t->unigram->byte_fallback) return 0;
    reach(at + one, t->unigram->unknown + at[begin].best, begin, unknown);
  }
  made->count = 0;
  for (end = n; end > 0; end = at[end].begin) { /* from the last piece on */
    if (at[end].id < 0 || made->count == MOST_IDS) return 0;
    if (at[end].gap < gap) gap = at[end].gap;
    if (at[end].id == unknown && made->count > 0 && made->ids[made->count - 1] == unknown) continue; /* a run is one */
    made->ids[made->count] = at[end].id, made->ends[made->count++] = (uint8_t)end;
  }
  /* each of at most n + 1 additions on both paths is off by at most 2^-24 of the sum; four times as much to be safe */
  made->score = at[n].best, made->limit = -gap * 2097152.0 / (double)(n + 1), made->size = (uint8_t)n;
  memcpy(made->word, s, n);
  return 1;
}

/* What is remembered of the word of n bytes with that hash; NULL where nothing can be. */
static const memo *known(const kb_tokenizer *t, struct kb_memos *m, const uint8_t *s, size_t n, uint64_t hash) {
  size_t first = (size_t)(hash >> 32) & (MEMOS / WAYS - 1) * WAYS, i, last = first + WAYS;
  uint32_t tag = (uint32_t)hash | 1;
  for (i = first; i < last && m->tags[i] != 0; i++)
    if (m->tags[i] == tag && m->memos[i].size == n && memcmp(m->memos[i].word, s, n) == 0) return m->memos + i;
  if (i == last) i = first + m->turn++ % WAYS; /* no place is free */
  m->tags[i] = 0;
  if (!remember(t, s, n, m->memos + i)) {
    m->tags[i] = m->tags[last - 1], m->memos[i] = m->memos[last - 1], m->tags[last - 1] = 0;
    return NULL;
  }
  m->tags[i] = tag;
  return m->memos + i;
}

int kb_unigram_by_words(const kb_tokenizer *t, kb_work *w, int offsets) {
  size_t ids = w->ids.count, places = w->starts.count, at = 0, n, i;
  double total = 0;
  if (!t->unigram->separable) return 0;
  if (w->memos == NULL) w->memos = calloc(1, sizeof *w->memos), w->memo_stamp = t->stamp;
  if (w->memos == NULL) return 0;
  if (w->memo_stamp != t->stamp) memset(w->memos->tags, 0, sizeof w->memos->tags), w->memo_stamp = t->stamp;
  for (; at < w->word.count; at += n) {
    const uint8_t *s = w->word.data + at;
    uint64_t hash = s[0];
    const memo *found;
    n = kb_word_length(s, w->word.count - at < LONGEST + 3 ? w->word.count - at : LONGEST + 3);
    if (n > LONGEST) break;
    for (i = 1; i < n; i++) hash = (hash ^ s[i]) * 0x9e3779b97f4a7c15u;
    found = known(t, w->memos, s, n, hash);
    if (found == NULL) break;
    total += found->score;
    if (total < found->limit) break;
    for (i = found->count; i-- > 0;) {
      kb_push_int(&w->ids, found->ids[i]);
      if (!offsets) continue;
      kb_push_int(&w->starts, w->sources.data[at + (i + 1 < found->count ? found->ends[i + 1] : 0)]);
      kb_push_int(&w->ends, w->sources.data[at + found->ends[i]]);
    }
  }
  if (at >= w->word.count) return 1;
  w->ids.count = ids;
  w->starts.count = w->ends.count = places;
  return 0;
}
