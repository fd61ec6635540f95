/*
 * _dl_find_object() of glibc 2.35, by which libgcc finds the unwind tables of an address, for musl: there
 * dl_iterate_phdr() has to do. See https://sourceware.org/glibc/manual/latest/html_node/Dynamic-Linker-Introspection.html
 */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>

struct dl_find_object {
  unsigned long long flags;
  void *start;
  void *end;
  void *map;
  void *eh_frame;
  unsigned long long reserved[7];
};

struct search {
  struct dl_find_object *found;
  ElfW(Addr) address;
};

static int look(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  int is_inside = 0;
  void *eh_frame = NULL;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    ElfW(Addr) start = info->dlpi_addr + segment->p_vaddr;
    ElfW(Addr) end = start + segment->p_memsz;
    if (segment->p_type == PT_GNU_EH_FRAME) eh_frame = (void *)start;
    if (segment->p_type != PT_LOAD || search->address < start || search->address >= end) continue;
    is_inside = 1;
    search->found->start = (void *)start;
    search->found->end = (void *)end;
  }
  if (!is_inside) return 0;
  search->found->eh_frame = eh_frame;
  return 1;
}

int _dl_find_object(void *address, struct dl_find_object *found) {
  struct search search = {found, (ElfW(Addr))address};
  return dl_iterate_phdr(look, &search) == 1 && found->eh_frame != NULL ? 0 : -1;
}
