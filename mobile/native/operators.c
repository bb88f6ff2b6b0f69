/* What neither the flatbuffer's verifier nor XNNPACK's delegate looks at before use: signatures, operands and scales, by the rules of
   runtime/checks/operators.py. An accident changes a file's sha256; this is for a file whose digest was made anew. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "internal.h"

#define ADD 0
#define FULLY_CONNECTED 9
#define SUB 41
#define STRIDED_SLICE 45
#define ANY (-1)

/* operator of the schema -> operands; 0: not known. FULLY_CONNECTED has a bias beside them, which may be -1 */
static const signed char OPERANDS[] = {
  [0] = 2, [2] = -1, [6] = 1, [7] = 2, [9] = 2, [14] = 1, [18] = 2, [19] = 1, [22] = 2, [25] = 1, [28] = 1, [34] = 2, [36] = 2,
  [39] = 2, [40] = 2, [41] = 2, [42] = 2, [43] = 1, [45] = 4, [47] = 1, [49] = 2, [53] = 1, [55] = 2, [56] = 2, [57] = 2, [58] = 2,
  [59] = 1, [61] = 2, [62] = 2, [63] = 2, [64] = 3, [65] = 3, [69] = 2, [70] = 2, [71] = 2, [72] = 2, [73] = 1, [74] = 2, [75] = 1,
  [76] = 1, [77] = 1, [78] = 2, [81] = 2, [82] = 2, [83] = -1, [84] = 2, [85] = 4, [86] = 2, [87] = 1, [90] = 2, [92] = 1, [94] = 2,
  [95] = 2, [96] = 3, [99] = 2, [101] = 1, [107] = 2, [114] = 1, [123] = 3, [126] = 2, [128] = 2, [130] = 2, [150] = 1, [159] = 1};

typedef struct flat { const unsigned char *data; size_t size; int bad; } flat; /* bad: something was read beyond its end */
typedef struct step { float scale; unsigned char kind, ready; } step;           /* of a tensor; scale: 0 where it has not one alone */
typedef struct list { size_t begin, count; } list;

static uint32_t number(flat *f, size_t place, size_t width) {
  uint32_t value = 0;
  if (place > f->size || f->size - place < width) return f->bad = 1, 0;
  while (width--) value = value << 8 | f->data[place + width];
  return value;
}

static int32_t whole(flat *f, size_t place) { return (int32_t)number(f, place, 4); }

static float real(flat *f, size_t place) {
  uint32_t bits = number(f, place, 4);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The place of a table's field; 0: it has none. */
static size_t field(flat *f, size_t table, size_t index) {
  size_t fields = table - (size_t)whole(f, table), offset;
  if (4 + 2 * index >= number(f, fields, 2)) return 0;
  offset = number(f, fields + 4 + 2 * index, 2);
  return offset ? table + offset : 0;
}

static size_t follow(flat *f, size_t place) { return place ? place + number(f, place, 4) : 0; }

static uint32_t value(flat *f, size_t table, size_t index, size_t width) {
  size_t place = field(f, table, index);
  return place ? number(f, place, width) : 0;
}

/* A table's vector, of items of `width` bytes. */
static list vector(flat *f, size_t table, size_t index, size_t width) {
  size_t place = follow(f, field(f, table, index));
  list found = {0, 0};
  if (place == 0) return found;
  found.begin = place + 4, found.count = number(f, place, 4);
  if (f->bad || found.count > (f->size - found.begin) / width) f->bad = 1, found.count = 0;
  return found;
}

static size_t table_of(flat *f, list tables, size_t i) { return follow(f, tables.begin + 4 * i); }

/* Scales are finite and as many as the zero points, which are of the tensor's type. */
static int scales_are_good(flat *f, size_t about, int kind) {
  list scales = vector(f, about, 2, 4), points = vector(f, about, 3, 8);
  const int32_t least = kind == 9 ? -128 : 0, most = kind == 9 ? 127 : kind == 3 ? 255 : 0; /* INT8, UINT8 */
  size_t i;
  if (scales.count != points.count) return 0;
  for (i = 0; i < scales.count; i++) {
    float scale = real(f, scales.begin + 4 * i);
    int32_t low = whole(f, points.begin + 8 * i), high = whole(f, points.begin + 8 * i + 4);
    if (!isfinite(scale) || scale < (scales.count == 1 ? FLT_MIN : 0) || high != (low < 0 ? -1 : 0) || low < least || low > most) return 0;
  }
  return 1;
}

static int tensor_is_good(flat *f, size_t tensor, list buffers, step *found) {
  size_t about = follow(f, field(f, tensor, 4)), buffer = value(f, tensor, 2, 4);
  list scales;
  if (value(f, tensor, 5, 1)) return 0; /* it keeps its value from call to call */
  found->kind = (unsigned char)value(f, tensor, 1, 1);
  if (buffer >= buffers.count) return 0;
  buffer = table_of(f, buffers, buffer);
  found->ready = field(f, buffer, 0) || field(f, buffer, 1);
  if (about == 0) return 1;
  scales = vector(f, about, 2, 4);
  if (scales.count == 1) found->scale = real(f, scales.begin);
  return scales_are_good(f, about, found->kind);
}

/* TFLite aborts where the scales of eight bits do not fit. */
static int sum_is_good(const step *one, const step *other, const step *result) {
  float most = one->scale > other->scale ? one->scale : other->scale;
  if (one->kind != other->kind || one->kind != result->kind) return 0;
  return (one->kind != 9 && one->kind != 3) || (most > 0 && 2 * most < result->scale * 1048576.0f);
}

/* An operator has its operands, of tensors that are there; what it gives is there then. */
static int operator_is_good(flat *f, size_t operator, uint32_t code, step *steps, size_t count) {
  list operands = vector(f, operator, 1, 4), results = vector(f, operator, 2, 4);
  const int wanted = code < sizeof OPERANDS ? OPERANDS[code] : 0;
  size_t i, needed = code == FULLY_CONNECTED && operands.count == 3 ? 2 : operands.count;
  if (wanted && (results.count == 0 || needed == 0 || (wanted != ANY && needed != (size_t)wanted))) return 0;
  for (i = 0; i < operands.count; i++) {
    int32_t index = whole(f, operands.begin + 4 * i);
    if (index < 0 ? wanted && i < needed : (size_t)index >= count || !steps[index].ready) return 0;
  }
  for (i = 0; i < results.count; i++) {
    int32_t index = whole(f, results.begin + 4 * i);
    if (index < 0 || (size_t)index >= count || steps[index].ready) return 0;
  }
  for (i = 0; i < results.count; i++) steps[whole(f, results.begin + 4 * i)].ready = 1;
  if (code == STRIDED_SLICE) { /* XNNPACK takes an end that is a length and computes beyond the tensor */
    size_t options = follow(f, field(f, operator, 4));
    return !options || !value(f, options, 5, 1);
  }
  if (code != ADD && code != SUB) return 1;
  return sum_is_good(&steps[whole(f, operands.begin)], &steps[whole(f, operands.begin + 4)], &steps[whole(f, results.begin)]);
}

static int graph_is_good(flat *f, size_t graph, list codes, list buffers, step *steps) {
  list tensors = vector(f, graph, 0, 4), inputs = vector(f, graph, 1, 4), operators = vector(f, graph, 3, 4);
  size_t i;
  for (i = 0; i < tensors.count; i++)
    if (!tensor_is_good(f, table_of(f, tensors, i), buffers, &steps[i])) return 0;
  for (i = 0; i < inputs.count; i++) {
    uint32_t index = number(f, inputs.begin + 4 * i, 4);
    if (index >= tensors.count) return 0;
    steps[index].ready = 1;
  }
  for (i = 0; i < operators.count; i++) {
    size_t operator = table_of(f, operators, i), place = value(f, operator, 0, 4);
    uint32_t old, code;
    if (place >= codes.count) return 0;
    place = table_of(f, codes, place);
    old = value(f, place, 0, 1), code = value(f, place, 3, 4);
    if (!operator_is_good(f, operator, code > old ? code : old, steps, tensors.count)) return 0;
  }
  return 1;
}

/* A signature's subgraph and tensors are there; the interpreter takes their numbers as they are. */
static int signature_is_good(flat *f, size_t signature, list graphs) {
  size_t graph = value(f, signature, 4, 4), side, i, count;
  if (graph >= graphs.count) return 0;
  count = vector(f, table_of(f, graphs, graph), 0, 4).count;
  for (side = 0; side < 2; side++) {
    list parts = vector(f, signature, side, 4);
    for (i = 0; i < parts.count; i++)
      if (value(f, table_of(f, parts, i), 1, 4) >= count) return 0;
  }
  return 1;
}

kb_status kb_check_operators(kb_text data, kb_message *message) {
  flat f = {(const unsigned char *)data.data, data.size, 0};
  const size_t root = number(&f, 0, 4);
  list codes = vector(&f, root, 1, 4), graphs = vector(&f, root, 2, 4), buffers = vector(&f, root, 4, 4), signatures = vector(&f, root, 7, 4);
  size_t i;
  int good = 1;
  for (i = 0; good && i < graphs.count; i++) {
    size_t graph = table_of(&f, graphs, i);
    step *steps = calloc(vector(&f, graph, 0, 4).count + 1, sizeof *steps);
    if (steps == NULL) return kb_no_memory(message);
    good = graph_is_good(&f, graph, codes, buffers, steps);
    free(steps);
  }
  for (i = 0; good && i < signatures.count; i++) good = signature_is_good(&f, table_of(&f, signatures, i), graphs);
  return good && !f.bad ? KB_OK : kb_fail(message, KB_DAMAGED, "the file is damaged: an operator, a tensor or a signature of it cannot be. Write it again");
}
