/* LiteRT's CompiledModel (google-ai-edge/LiteRT, litert/c, from 2.1.6 on) by dlopen. Declared here is what is called and no more:
   the core is compiled without LiteRT's headers, and needs it where a runner is opened alone. */
#if !defined(__wasm__)
#if !defined(_WIN32)
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <sys/resource.h>
#endif
#if defined(__linux__)
#include <unistd.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#if defined(_WIN32)
#include <windows.h>
#endif

#include "litert.h"

#define CANCELLED 100  /* kLiteRtStatusCancelled */
#define CPU 1          /* kLiteRtHwAcceleratorCpu, Gpu, Npu */
#define GPU 2
#define NPU 4
#define SEVERITY_TAG 25 /* kLiteRtEnvOptionTagMinLoggerSeverity */
#define SILENT 4       /* kLiteRtLogSeveritySilent */

/* ---- what is called ---- */

/* In the order of `api`. */
static const char *const names[] = {
    "CreateEnvironment", "DestroyEnvironment", "CreateModelFromBuffer", "DestroyModel", "CreateOptions", "DestroyOptions",
    "SetOptionsHardwareAccelerators", "AddOpaqueOptions", "CreateOpaqueOptions", "CreateCompiledModel", "DestroyCompiledModel",
    "SetCompiledModelCancellationFunction", "GetNumModelSignatures", "GetModelSignature", "GetSignatureKey", "GetNumSignatureInputs",
    "GetSignatureInputName", "GetSignatureInputTensorByIndex", "GetNumSignatureOutputs", "GetSignatureOutputName",
    "GetSignatureOutputTensorByIndex", "GetRankedTensorType", "CompiledModelResizeInputTensor", "GetCompiledModelOutputTensorLayouts",
    "GetCompiledModelInputBufferRequirements", "GetCompiledModelOutputBufferRequirements", "CreateManagedTensorBufferFromRequirements",
    "DestroyTensorBuffer", "GetTensorBufferSize", "LockTensorBuffer", "UnlockTensorBuffer", "RunCompiledModel", "CompiledModelIsFullyAccelerated",
    "GetNumAccelerators", "GetAccelerator", "GetAcceleratorHardwareSupport", "CreateModelFromFd"};
#define FUNCTIONS (sizeof names / sizeof *names)
typedef char as_many_names_as_functions[sizeof(api) == FUNCTIONS * sizeof(void (*)(void)) ? 1 : -1];

/* ---- the library ---- */

#if defined(_WIN32)
#define DEFAULT "LiteRt.dll"
static void *library_open(const char *name) { return name ? (void *)LoadLibraryA(name) : (void *)GetModuleHandleA(NULL); }
static void library_close(void *library) { (void)library; }
static void find(void *library, const char *name, void *slot) {
  FARPROC found = GetProcAddress((HMODULE)library, name);
  memcpy(slot, &found, sizeof found);
}
#else
#if defined(__APPLE__)
#define DEFAULT "libLiteRt.dylib"
#else
#define DEFAULT "libLiteRt.so"
#endif
static void *library_open(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
static void library_close(void *library) { (void)library; } /* its threads and static objects do not survive it */
static void find(void *library, const char *name, void *slot) {
  void *found = dlsym(library, name);
  memcpy(slot, &found, sizeof found);
}
#endif

/* Fills `call`; the name of the first function that is missing, NULL where none is. */
static const char *functions(void *library, api *call) {
  size_t i;
  for (i = 0; i < FUNCTIONS; i++) {
    char name[80];
    void (*found)(void) = NULL;
    snprintf(name, sizeof name, "LiteRt%s", names[i]);
    find(library, name, &found);
    if (found == NULL) return names[i];
    memcpy((char *)call + i * sizeof found, &found, sizeof found);
  }
  return NULL;
}

static kb_status load(litert *l, const char *name, kb_message *message) {
  const char *missing;
  l->library = name == NULL ? library_open(NULL) : NULL;
  if (l->library != NULL && functions(l->library, &l->call) == NULL) return KB_OK;
  if (l->library != NULL) library_close(l->library);
  if (name == NULL) name = DEFAULT;
  l->library = library_open(name);
  if (l->library == NULL)
    return kb_fail(message, KB_INTERPRETER, "%.120s is not to be loaded, expected LiteRT's library: name its file in the options", name);
  missing = functions(l->library, &l->call);
  if (missing == NULL) return KB_OK;
  return kb_fail(message, KB_INTERPRETER, "%.120s has no LiteRt%s, expected LiteRT 2.1.6 or later", name, missing);
}

/* ---- a network ---- */

kb_status kb_litert_refused(kb_message *message, const char *what, int status) {
  if (status == CANCELLED) return kb_fail(message, KB_CANCELLED, "the answer was cancelled");
  return kb_fail(message, KB_INTERPRETER, "LiteRT cannot %s the network (its status %d): write the file again", what, status);
}

kb_status kb_litert_differs(kb_message *message, const char *signature, const char *what, const char *name) {
  return kb_fail(message, KB_DAMAGED, "the signature %.60s has not the %s %.60s of its bundle: write the file again", signature, what, name);
}

/* Whether XNNPACK may pack weights into memory: it ends the process where it cannot. As runtime/system/cache.py's can_pack.
   memfd_create is looked up: Android has it from API 30 on. */
static int can_pack(size_t size) {
#if defined(__linux__)
  struct rlimit limit;
  int (*create)(const char *, unsigned) = NULL, file;
  find(RTLD_DEFAULT, "memfd_create", &create);
  if (create == NULL || (file = create("kerasbert", 1)) < 0) return 0; /* 1: MFD_CLOEXEC */
  close(file);
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > 4 * (rlim_t)size + (4 << 20);
#else
  (void)size;
  return 0;
#endif
}

int kb_litert_delegate(const char *name) {
  return strcmp(name, "xnnpack") == 0 ? CPU : strcmp(name, "gpu") == 0 ? GPU : strcmp(name, "npu") == 0 ? NPU : 0;
}

/* Whether there is an accelerator of that bit: where none is, LiteRT leaves a network that the processor may take to it in silence. */
static int has(litert *l, int delegate) {
  size_t count = 0, i;
  if (l->call.GetNumAccelerators(l->environment, &count) != 0) return 0;
  for (i = 0; i < count; i++) {
    void *accelerator = NULL;
    int bits = 0;
    if (l->call.GetAccelerator(l->environment, i, &accelerator) != 0) return 0;
    if (l->call.GetAcceleratorHardwareSupport(accelerator, &bits) == 0 && (bits & delegate) != 0) return 1;
  }
  return 0;
}

/* The model for a processor or an accelerator: all signatures share packed weights where `pack`. What a GPU does not take, such as
   the positions of several lengths, the processor computes. */
static int compile(litert *l, int delegate, int32_t threads, int pack) {
  void *options = NULL, *opaque = NULL;
  char *said = malloc(96);
  int status = said == NULL ? -1 : l->call.CreateOptions(&options);
  if (status == 0) status = l->call.SetOptionsHardwareAccelerators(options, delegate == GPU ? GPU | CPU : delegate);
  if (status == 0) {
    snprintf(said, 96, "num_threads = %ld\n%s", (long)threads, pack ? "weight_cache_file_path = \":memory\"\n" : "");
    status = l->call.CreateOpaqueOptions("xnnpack", said, free, &opaque);
    if (status == 0) said = NULL, status = l->call.AddOpaqueOptions(options, opaque);
  }
  if (status == 0) status = l->call.CreateCompiledModel(l->environment, l->model, options, &l->compiled);
  if (options != NULL) l->call.DestroyOptions(options);
  free(said);
  return status;
}

static bool stops(void *cancelled) { return kb_load((const int32_t *)cancelled) != 0; }

static void forget(litert *l) {
  size_t i;
  for (i = 0; i < MOST_PARTS; i++) {
    if (l->now.input[i] != NULL) l->call.DestroyTensorBuffer(l->now.input[i]);
    if (l->now.output[i] != NULL) l->call.DestroyTensorBuffer(l->now.output[i]);
  }
  memset(&l->now, 0, sizeof l->now);
}

static void litert_close(void *context) {
  litert *l = context;
  if (l == NULL) return;
  forget(l);
  if (l->compiled != NULL) l->call.DestroyCompiledModel(l->compiled);
  if (l->model != NULL) l->call.DestroyModel(l->model);
  if (l->environment != NULL) l->call.DestroyEnvironment(l->environment);
  free(l->values);
  free(l);
}

/* The signature of that name -> its number and handle. */
kb_status kb_litert_signature(litert *l, const char *name, size_t *number, void **signature, kb_message *message) {
  size_t count = 0;
  const char *key = NULL;
  int status = l->call.GetNumModelSignatures(l->model, &count);
  for (*number = 0; status == 0 && *number < count; (*number)++) {
    status = l->call.GetModelSignature(l->model, *number, signature);
    if (status == 0) status = l->call.GetSignatureKey(*signature, &key);
    if (status == 0 && key != NULL && strcmp(key, name) == 0) return KB_OK;
  }
  if (status != 0) return kb_litert_refused(message, "read", status);
  return kb_fail(message, KB_DAMAGED, "the file has no signature %.60s, which its bundle names: write the file again", name);
}

/* A buffer for an input, which has [1, count] numbers of the type that the file says. */
static kb_status input_buffer(litert *l, void *signature, size_t i, const char *name, const kb_input *inputs, size_t count, kb_message *message) {
  prepared *p = &l->now;
  const char *own = NULL;
  void *tensor = NULL, *requirements = NULL;
  ranked type;
  size_t k = 0, axis;
  int dims[2], status = l->call.GetSignatureInputName(signature, i, &own);
  if (status == 0) status = l->call.GetSignatureInputTensorByIndex(signature, i, &tensor);
  if (status == 0) status = l->call.GetRankedTensorType(tensor, &type);
  if (status != 0) return kb_litert_refused(message, "read", status);
  while (k < count && strcmp(inputs[k].name, own) != 0) k++;
  if (k == count || strlen(own) >= MOST_NAME) return kb_litert_differs(message, name, "input", own);
  snprintf(p->input_names[i], MOST_NAME, "%s", own);
  dims[0] = 1, dims[1] = (int)inputs[k].count;
  if (type.shape.rank != 2 || type.element != (inputs[k].is_bool ? BOOL : INT32)) return kb_litert_differs(message, name, "input", own);
  for (axis = 0; axis < 2; axis++)
    if (type.shape.dimensions[axis] >= 0 && type.shape.dimensions[axis] != dims[axis]) return kb_litert_differs(message, name, "input", own);
  if (type.shape.dimensions[0] < 0 || type.shape.dimensions[1] < 0)
    status = l->call.CompiledModelResizeInputTensor(l->compiled, p->number, i, dims, 2);
  for (axis = 0; axis < 2; axis++) type.shape.dimensions[axis] = dims[axis];
  if (status == 0) status = l->call.GetCompiledModelInputBufferRequirements(l->compiled, p->number, i, &requirements);
  if (status == 0) status = l->call.CreateManagedTensorBufferFromRequirements(l->environment, &type, requirements, &p->input[i]);
  return status == 0 ? KB_OK : kb_litert_refused(message, "run", status);
}

/* Buffers for the outputs, of which `output` is read: float32 of any shape. */
static kb_status output_buffers(litert *l, void *signature, const char *name, const char *output, kb_message *message) {
  prepared *p = &l->now;
  layout shapes[MOST_PARTS];
  size_t i, axis;
  int status = l->call.GetCompiledModelOutputTensorLayouts(l->compiled, p->number, p->outputs, shapes, true), there = 0;
  for (i = 0; status == 0 && i < p->outputs; i++) {
    const char *own = NULL;
    void *tensor = NULL, *requirements = NULL;
    ranked type;
    status = l->call.GetSignatureOutputName(signature, i, &own);
    if (status == 0) status = l->call.GetSignatureOutputTensorByIndex(signature, i, &tensor);
    if (status == 0) status = l->call.GetRankedTensorType(tensor, &type);
    if (status != 0) break;
    type.shape = shapes[i];
    if (type.shape.rank > MOST_RANK) return kb_litert_differs(message, name, "output", own);
    if (strcmp(own, output) == 0) {
      there = 1, p->place = i, p->values = 1;
      for (axis = 0; axis < type.shape.rank; axis++) {
        size_t size = type.shape.dimensions[axis] > 0 ? (size_t)type.shape.dimensions[axis] : 0;
        if (size == 0 || p->values > KB_MOST_VALUES / size) return kb_litert_differs(message, name, "output", own);
        p->values *= size;
      }
      if (type.element != FLOAT32) return kb_litert_differs(message, name, "output", own);
    }
    status = l->call.GetCompiledModelOutputBufferRequirements(l->compiled, p->number, i, &requirements);
    if (status == 0) status = l->call.CreateManagedTensorBufferFromRequirements(l->environment, &type, requirements, &p->output[i]);
  }
  if (status != 0) return kb_litert_refused(message, "run", status);
  return there ? KB_OK : kb_litert_differs(message, name, "output", output);
}

static kb_status prepare(litert *l, const char *name, const kb_input *inputs, size_t count, const char *output, kb_message *message) {
  prepared *p = &l->now;
  void *signature = NULL;
  size_t i, number = 0;
  kb_status status = strlen(name) < MOST_NAME ? kb_litert_signature(l, name, &number, &signature, message) : kb_litert_differs(message, name, "name", name);
  if (status != KB_OK) return status;
  forget(l);
  p->number = number;
  if (l->call.GetNumSignatureInputs(signature, &p->inputs) != 0 || l->call.GetNumSignatureOutputs(signature, &p->outputs) != 0 ||
      p->inputs != count || p->outputs < 1 || p->outputs > MOST_PARTS || count > MOST_PARTS)
    return kb_litert_differs(message, name, "inputs and outputs", "");
  for (i = 0; i < count && status == KB_OK; i++) status = input_buffer(l, signature, i, name, inputs, count, message);
  if (status == KB_OK) status = output_buffers(l, signature, name, output, message);
  if (status == KB_OK) snprintf(p->name, MOST_NAME, "%s", name), p->length = inputs[0].count;
  else forget(l);
  return status;
}

/* Copies numbers into a buffer, or out of one. */
int kb_litert_copy(litert *l, void *buffer, void *data, size_t bytes, int write) {
  size_t size = 0;
  void *memory = NULL;
  int status = l->call.GetTensorBufferSize(buffer, &size);
  if (status == 0 && size < bytes) status = -1;
  if (status == 0) status = l->call.LockTensorBuffer(buffer, &memory, write);
  if (status != 0) return status;
  if (write) memcpy(memory, data, bytes);
  else memcpy(data, memory, bytes);
  return l->call.UnlockTensorBuffer(buffer);
}

static kb_status litert_run(void *context, const char *signature, const kb_input *inputs, size_t count, const char *output, const float **values,
                            size_t *size, kb_message *message) {
  litert *l = context;
  prepared *p = &l->now;
  kb_status status = KB_OK;
  size_t i, k;
  int done = 0;
  if (p->name[0] == 0 || strcmp(p->name, signature) != 0 || p->length != inputs[0].count)
    status = prepare(l, signature, inputs, count, output, message);
  for (i = 0; i < count && status == KB_OK && done == 0; i++)
    for (k = 0; k < count; k++)
      if (strcmp(p->input_names[i], inputs[k].name) == 0)
        done = kb_litert_copy(l, p->input[i], (void *)(uintptr_t)inputs[k].data, inputs[k].count * (inputs[k].is_bool ? 1 : 4), 1);
  if (status != KB_OK) return status;
  if (!kb_reserve((void **)&l->values, &l->room, p->values, sizeof *l->values)) return kb_no_memory(message);
  if (done == 0) done = l->call.RunCompiledModel(l->compiled, p->number, p->inputs, p->input, p->outputs, p->output);
  if (done == 0) done = kb_litert_copy(l, p->output[p->place], l->values, p->values * sizeof *l->values, 0);
  if (done != 0) return kb_litert_refused(message, "run", done);
  *values = l->values, *size = p->values;
  return KB_OK;
}

/* Whether an accelerator computes all of the network. */
static int whole(litert *l) {
  bool all = false;
  return l->call.CompiledModelIsFullyAccelerated(l->compiled, &all) == 0 && all;
}

kb_status kb_litert_open(kb_text data, const kb_runner_options *options, const int32_t *cancelled, kb_network *network, kb_message *message) {
  const char *name = options != NULL && options->delegate != NULL ? options->delegate : "xnnpack";
  const int32_t threads = options != NULL && options->threads ? options->threads : 1;
  const int delegate = kb_litert_delegate(name);
  option quiet;
  litert *l = calloc(1, sizeof *l);
  kb_status status;
  int done;
  memset(network, 0, sizeof *network);
  if (l == NULL) return kb_no_memory(message);
  memset(&quiet, 0, sizeof quiet);
  quiet.tag = SEVERITY_TAG, quiet.any.type = 2, quiet.any.value.number = SILENT; /* 2: kLiteRtAnyTypeInt */
  status = load(l, options != NULL ? options->library : NULL, message);
  if (status == KB_OK) {
    done = l->call.CreateEnvironment(1, &quiet, &l->environment);
    if (done == 0) done = l->call.CreateModelFromBuffer(l->environment, data.data, data.size, &l->model);
    if (done == 0) {
      int pack = delegate == CPU && can_pack(data.size);
      done = has(l, delegate) ? compile(l, delegate, threads, pack) : -1;
      if (done != 0 && pack) done = compile(l, delegate, threads, 0);
      if (delegate != CPU && (done != 0 || (delegate == NPU && !whole(l)))) {
        litert_close(l);
        return kb_fail(message, KB_INTERPRETER, "LiteRT has no %s here, or it does not take %sthe network: the delegate xnnpack runs it", name,
                       delegate == NPU ? "all of " : "");
      }
    }
    if (done == 0) done = l->call.SetCompiledModelCancellationFunction(l->compiled, (void *)(uintptr_t)cancelled, stops);
    if (done != 0) status = kb_litert_refused(message, "open", done);
  }
  if (status != KB_OK) {
    litert_close(l);
    return status;
  }
  network->context = l, network->run = litert_run, network->close = litert_close;
  return KB_OK;
}
#else
typedef int kb_not_of_webassembly; /* a file is not empty in C99 */
#endif
