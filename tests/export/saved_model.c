/* A SavedModel called by TensorFlow's C API, as a program without Python calls it.

   saved_model FOLDER LIBRARY... < request
   LIBRARY: of the operators that the graph has beside TensorFlow's own.
   A request is "input OPERATION INDEX TYPE AXES SIZE..." and its values, "output OPERATION INDEX" for each that is wanted, and
   "run", which prints "TYPE AXES SIZE..." and the values of each output. A string is its length, a blank and its bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>
#include <tensorflow/c/tf_tstring.h>

enum { MOST = 16 };

static void need(int right, const char *what) {
  if (right) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static TF_Output named(TF_Graph *graph) {
  char name[1000];
  int index;
  need(scanf("%999s %d", name, &index) == 2, "a name and an index are missing");
  TF_Output found = {TF_GraphOperationByName(graph, name), index};
  need(found.oper != NULL, name);
  return found;
}

static void read_string(TF_TString *into) {
  size_t size;
  need(scanf("%zu", &size) == 1 && getchar() == ' ', "a string begins with its length");
  char *bytes = malloc(size + 1);
  need(fread(bytes, 1, size, stdin) == size, "a string is cut off");
  TF_StringInit(into);
  TF_StringCopy(into, bytes, size);
  free(bytes);
}

static TF_Tensor *read_tensor(void) {
  int type, axes;
  int64_t sizes[8], count = 1;
  need(scanf("%d %d", &type, &axes) == 2 && axes <= 8, "a type and axes are missing");
  for (int i = 0; i < axes; i++) {
    need(scanf("%" SCNd64, sizes + i) == 1, "a size is missing");
    count *= sizes[i];
  }
  size_t each = type == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(type);
  TF_Tensor *tensor = TF_AllocateTensor(type, sizes, axes, count * each);
  for (int64_t i = 0; i < count; i++) {
    if (type == TF_STRING) {
      read_string((TF_TString *)TF_TensorData(tensor) + i);
    } else {
      need(type == TF_INT32 && scanf("%" SCNd32, (int32_t *)TF_TensorData(tensor) + i) == 1, "int32 or string");
    }
  }
  return tensor;
}

static void print_value(const TF_Tensor *tensor, int64_t i) {
  const void *data = TF_TensorData(tensor);
  const TF_TString *text = (const TF_TString *)data + i;
  switch (TF_TensorType(tensor)) {
    case TF_STRING:
      printf("%zu ", TF_TString_GetSize(text));
      fwrite(TF_TString_GetDataPointer(text), 1, TF_TString_GetSize(text), stdout);
      printf("\n");
      break;
    case TF_FLOAT: printf("%.9g\n", ((const float *)data)[i]); break;
    case TF_INT32: printf("%" PRId32 "\n", ((const int32_t *)data)[i]); break;
    case TF_BOOL: printf("%d\n", ((const unsigned char *)data)[i]); break;
    default: need(0, "an output of another type");
  }
}

static void print_tensor(const TF_Tensor *tensor) {
  printf("%d %d", TF_TensorType(tensor), TF_NumDims(tensor));
  for (int i = 0; i < TF_NumDims(tensor); i++) printf(" %" PRId64, TF_Dim(tensor, i));
  printf("\n");
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); i++) print_value(tensor, i);
}

int main(int count, char **words) {
  TF_Status *status = TF_NewStatus();
  for (int i = 2; i < count; i++) {
    TF_LoadLibrary(words[i], status);
    need(TF_GetCode(status) == TF_OK, TF_Message(status));
  }
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, words[1], tags, 1, graph, NULL, status);
  need(TF_GetCode(status) == TF_OK, TF_Message(status));
  TF_Output inputs[MOST], outputs[MOST];
  TF_Tensor *given[MOST], *found[MOST];
  int in = 0, out = 0;
  char word[16];
  while (scanf("%15s", word) == 1) {
    need(in < MOST && out < MOST, "too many inputs or outputs");
    if (!strcmp(word, "input")) {
      inputs[in] = named(graph);
      given[in++] = read_tensor();
    } else if (!strcmp(word, "output")) {
      outputs[out++] = named(graph);
    } else {
      TF_SessionRun(session, NULL, inputs, given, in, outputs, found, out, NULL, 0, NULL, status);
      need(TF_GetCode(status) == TF_OK, TF_Message(status));
      for (int i = 0; i < out; i++) {
        print_tensor(found[i]);
        TF_DeleteTensor(found[i]);
      }
      while (in) TF_DeleteTensor(given[--in]);
      out = 0;
    }
  }
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteGraph(graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteStatus(status);
  return 0;
}
