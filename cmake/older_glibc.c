/* What static libraries of a newer toolchain want of glibc and 2.28 lacks: linked into the library
 * of the wheel where that is made for an older glibc (cmake/kernels.cmake), and seen by nothing
 * else. */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

struct dl_find_object;

#define OURS __attribute__((visibility("hidden")))

/* 2.32: 0 says that there may be threads. */
OURS char __libc_single_threaded = 0;

/* 2.36. */
OURS uint32_t arc4random(void) {
  uint32_t out = 0;
  if (getentropy(&out, sizeof out) != 0) abort();
  return out;
}

/* 2.35, for the unwinder: the loaded object that has an address, and its table of frames. */
struct object {
  unsigned long long flags;
  void* begin;
  void* end;
  struct link_map* map;
  void* frames;
  unsigned long long reserved[7];
};

struct search {
  uintptr_t address;
  struct object* found;
};

static int visit(struct dl_phdr_info* info, size_t size, void* data) {
  const struct search* s = data;
  void* frames = NULL;
  int here = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
    const uintptr_t end = begin + segment->p_memsz;
    if (segment->p_type == PT_GNU_EH_FRAME) frames = (void*)begin;
    if (segment->p_type != PT_LOAD || s->address < begin || s->address >= end) continue;
    here = 1;
    s->found->begin = (void*)begin;
    s->found->end = (void*)end;
  }
  if (here) s->found->frames = frames;
  return here;
}

OURS int _dl_find_object(void* address, struct dl_find_object* out) {
  struct object found = {0};
  struct search s = {(uintptr_t)address, &found};
  if (!dl_iterate_phdr(visit, &s) || found.frames == NULL) return -1;
  *(struct object*)out = found;
  return 0;
}
