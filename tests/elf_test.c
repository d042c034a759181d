/* SPDX-License-Identifier: Apache-2.0 */

/* What the linked program offers an attacker: it lies at an address of chance, its stack cannot be
 * executed, its tables of functions are read-only once it runs, and calls that overrun a buffer end
 * it. Read from the file itself. */

#include <check.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/base.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"

static const unsigned char *file;
static size_t file_bytes;

static const Elf64_Ehdr *head(void)
{
    return (const void *)file;
}

/* NULL when there is none. */
static const Elf64_Phdr *segment(uint32_t type)
{
    const Elf64_Phdr *table = (const void *)(file + head()->e_phoff);
    for (uint32_t i = 0; i < head()->e_phnum; i++) {
        if (table[i].p_type == type) {
            return &table[i];
        }
    }
    return NULL;
}

static const Elf64_Shdr *section(uint32_t type)
{
    const Elf64_Shdr *table = (const void *)(file + head()->e_shoff);
    for (uint32_t i = 0; i < head()->e_shnum; i++) {
        if (table[i].sh_type == type) {
            return &table[i];
        }
    }
    return NULL;
}

static uint64_t dynamic(int64_t tag)
{
    const Elf64_Phdr *where = segment(PT_DYNAMIC);
    ck_assert_ptr_nonnull(where);
    for (const Elf64_Dyn *d = (const void *)(file + where->p_offset); d->d_tag != DT_NULL; d++) {
        if (d->d_tag == tag) {
            return d->d_un.d_val;
        }
    }
    return 0;
}

/* Whether the program takes a function of this name, or one that ends so, from a library. */
static bool imports(const char *name, bool as_ending)
{
    const Elf64_Shdr *symbols = section(SHT_DYNSYM);
    ck_assert_ptr_nonnull(symbols);
    const Elf64_Shdr *sections = (const void *)(file + head()->e_shoff);
    const char *names = (const char *)file + sections[symbols->sh_link].sh_offset;
    const Elf64_Sym *symbol = (const void *)(file + symbols->sh_offset);
    for (size_t i = 0; i < symbols->sh_size / sizeof *symbol; i++) {
        const char *at = names + symbol[i].st_name;
        size_t skip = as_ending && strlen(at) > strlen(name) ? strlen(at) - strlen(name) : 0;
        if (symbol[i].st_shndx == SHN_UNDEF && strcmp(at + skip, name) == 0) {
            return true;
        }
    }
    return false;
}

START_TEST(the_program_lies_at_an_address_of_chance)
{
    ck_assert_int_eq(head()->e_type, ET_DYN);
    ck_assert_uint_eq(dynamic(DT_FLAGS_1) & DF_1_PIE, DF_1_PIE);
}
END_TEST

START_TEST(the_stack_cannot_be_executed)
{
    const Elf64_Phdr *stack = segment(PT_GNU_STACK);
    ck_assert_ptr_nonnull(stack);
    ck_assert_uint_eq(stack->p_flags & PF_X, 0);
}
END_TEST

START_TEST(nothing_is_writable_and_executable)
{
    const Elf64_Phdr *table = (const void *)(file + head()->e_phoff);
    for (uint32_t i = 0; i < head()->e_phnum; i++) {
        bool loaded = table[i].p_type == PT_LOAD;
        ck_assert(!loaded || (table[i].p_flags & (PF_W | PF_X)) != (PF_W | PF_X));
    }
}
END_TEST

START_TEST(tables_of_functions_are_filled_at_once_and_then_read_only)
{
    ck_assert_ptr_nonnull(segment(PT_GNU_RELRO));
    ck_assert_uint_eq(dynamic(DT_FLAGS_1) & DF_1_NOW, DF_1_NOW);
    ck_assert_uint_eq(dynamic(DT_TEXTREL), 0);
}
END_TEST

START_TEST(an_overrun_ends_the_program)
{
    ck_assert(imports("__stack_chk_fail", false));
#ifdef K3RING_SANITIZED
    printf("skip: a sanitizer checks these calls itself\n");
#else
    ck_assert(imports("_chk", true));
    ck_assert(imports("__snprintf_chk", false));
#endif
}
END_TEST

static void map(void)
{
    struct stat about;
    int fd = open(process_binary(), O_RDONLY);
    bool good = fd >= 0 && fstat(fd, &about) == 0 && about.st_size > (off_t)sizeof(Elf64_Ehdr);
    file_bytes = good ? (size_t)about.st_size : 0;
    file = good ? mmap(NULL, file_bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (file == MAP_FAILED || memcmp(file, ELFMAG, SELFMAG) != 0) {
        fprintf(stderr, "elf_test: k3ring cannot be read\n");
        exit(EXIT_FAILURE);
    }
    close(fd);
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "elf_test: there is no k3ring beside the folder of this test\n");
        return EXIT_FAILURE;
    }
    map();
    Suite *suite = suite_create("elf");
    TCase *tcase = tcase_create("program");
    tcase_add_test(tcase, the_program_lies_at_an_address_of_chance);
    tcase_add_test(tcase, the_stack_cannot_be_executed);
    tcase_add_test(tcase, nothing_is_writable_and_executable);
    tcase_add_test(tcase, tables_of_functions_are_filled_at_once_and_then_read_only);
    tcase_add_test(tcase, an_overrun_ends_the_program);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
