/* The network's weights: in the library, or in a mapped file whose header and size are checked. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "plan.h"

typedef struct {
  const char* content;
  size_t mapped_bytes; /* 0 if they are in the library */
} weights;

#ifdef WEIGHTS_INSIDE

__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    "export_weights:\n"
    ".incbin \"" WEIGHTS_INSIDE "\"\n"
    ".balign 64\n"
    ".previous\n");
extern const char export_weights[] __attribute__((visibility("hidden")));

static network_error weights_open(weights* opened, const char* path, int check) {
  (void)path, (void)check;
  opened->content = export_weights;
  opened->mapped_bytes = 0;
  return NETWORK_OK;
}

static void weights_close(weights* opened) { (void)opened; }

#else

enum { LANES = 8 };
static const uint64_t FACTOR = 0x9e3779b97f4a7c15;

typedef struct {
  char magic[8];
  uint64_t bytes;
  uint64_t checksum;
  uint8_t digest[32];
  uint8_t unused[8];
} header;

/* Returns the checksum of everything after the header. */
static uint64_t checksum_of(const char* content, size_t bytes) {
  uint64_t lanes[LANES] = {0}, words[LANES], total = 0;
  for (size_t offset = sizeof(header); offset < bytes; offset += sizeof words) {
    memcpy(words, content + offset, sizeof words);
    for (int i = 0; i < LANES; ++i) lanes[i] = lanes[i] * FACTOR + words[i];
  }
  for (int i = 0; i < LANES; ++i) total = total * FACTOR + lanes[i];
  return total;
}

/* Returns whether a file's header and size match this library. */
static int matches(const header* file, size_t bytes) {
  static const uint8_t digest[32] = WEIGHTS_DIGEST;
  return bytes == NETWORK_WEIGHTS_BYTES && !memcmp(file->magic, "ANOLEWTS", sizeof file->magic) &&
         file->bytes == bytes && file->checksum == WEIGHTS_CHECKSUM && !memcmp(file->digest, digest, sizeof digest);
}

static void weights_close(weights* opened) {
  if (opened->mapped_bytes) munmap((void*)opened->content, opened->mapped_bytes);
}

/* Opens and maps the file, and checks that it matches the library. */
static network_error weights_open(weights* opened, const char* path, int check) {
  if (!path) return NETWORK_ERROR_NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return NETWORK_ERROR_WEIGHTS_MISSING;
  struct stat status;
  void* content = MAP_FAILED;
  if (!fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size == (off_t)NETWORK_WEIGHTS_BYTES)
    content = mmap(NULL, NETWORK_WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (content == MAP_FAILED) return NETWORK_ERROR_WEIGHTS_DAMAGED;
  opened->content = content;
  opened->mapped_bytes = NETWORK_WEIGHTS_BYTES;
  if (matches(content, NETWORK_WEIGHTS_BYTES) &&
      (!check || checksum_of(content, NETWORK_WEIGHTS_BYTES) == WEIGHTS_CHECKSUM))
    return NETWORK_OK;
  weights_close(opened);
  return NETWORK_ERROR_WEIGHTS_DAMAGED;
}

#endif
