/* A file's bytes in memory. */
#if !defined(__wasm__)
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#if !defined(_WIN32)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "internal.h"

static kb_status unread(const char *path, kb_message *message) {
  return kb_fail(message, KB_ARGUMENT, "cannot read %.160s: %s", path, errno ? strerror(errno) : "it is no file, or empty");
}

#if defined(_WIN32)
kb_status kb_file_map(const char *path, kb_text *data, kb_message *message) {
  FILE *file = fopen(path, "rb");
  kb_bytes bytes;
  char block[65536];
  size_t size;
  memset(&bytes, 0, sizeof bytes);
  if (file == NULL) return unread(path, message);
  while ((size = fread(block, 1, sizeof block, file)) > 0 && !bytes.failed) kb_push_bytes(&bytes, block, size);
  fclose(file);
  if (bytes.failed || bytes.count == 0) {
    free(bytes.data);
    return bytes.failed ? kb_no_memory(message) : unread(path, message);
  }
  data->data = (const char *)bytes.data, data->size = bytes.count;
  return KB_OK;
}

void kb_file_unmap(kb_text data) { free((void *)data.data); }
#else
kb_status kb_file_map(const char *path, kb_text *data, kb_message *message) {
  void *mapped = MAP_FAILED;
  char first; /* no fstat: what it fills differs between C libraries of 32 bits */
  off_t size = 0;
  int file;
  errno = 0;
  file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return unread(path, message);
  if (read(file, &first, 1) == 1 && (size = lseek(file, 0, SEEK_END)) > 0 && (uintmax_t)size <= SIZE_MAX)
    mapped = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return unread(path, message);
  data->data = mapped, data->size = (size_t)size;
  return KB_OK;
}

void kb_file_unmap(kb_text data) {
  if (data.size > 0) munmap((void *)(uintptr_t)data.data, data.size);
}
#endif
#else
typedef int kb_no_file_of_webassembly; /* a file is not empty in C99 */
#endif
