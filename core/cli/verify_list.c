/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of sha256sum: "HASH  NAME" or "HASH *NAME"; with a backslash before the hash, the name has
 * "\\", "\n" and "\r" for those bytes. Its other form is "SHA256 (NAME) = HASH". */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/verify.h"

#define LIST_CAP_BYTES (64 * MIB)
#define HASH_DIGITS (2U * VERIFY_HASH_BYTES)
#define SHOWN_BYTES 80
static const char tag[] = "SHA256 (";

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* All HASH_DIGITS digits are hexadecimal. */
static bool take_hash(const char *text, unsigned char hash[VERIFY_HASH_BYTES])
{
    for (uint32_t i = 0; i < VERIFY_HASH_BYTES; i++) {
        int high = digit_of(text[2 * i]);
        int low = high < 0 ? -1 : digit_of(text[2 * i + 1]);
        if (low < 0) {
            return false;
        }
        hash[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* In place; false for a backslash before anything else. */
static bool unescape(char *name)
{
    char *to = name;
    for (const char *at = name; *at != '\0'; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        at++;
        if (*at != '\\' && *at != 'n' && *at != 'r') {
            return false;
        }
        *to++ = (char)(*at == 'n' ? '\n' : *at == 'r' ? '\r' : '\\');
    }
    *to = '\0';
    return true;
}

/* text ends with a zero byte and may be written to. NULL, or what is wrong with the line. */
static const char *take_line(char *text, struct verify_entry *entry)
{
    bool escaped = text[0] == '\\';
    char *at = text + escaped;
    char *name;
    if (strncmp(at, tag, sizeof tag - 1) == 0) {
        name = at + sizeof tag - 1;
        char *end = NULL;
        for (char *next = strstr(name, ") = "); next != NULL; next = strstr(next + 1, ") = ")) {
            end = next;
        }
        if (end == NULL || strlen(end + 4) != HASH_DIGITS || !take_hash(end + 4, entry->hash)) {
            return "has no SHA-256 of 64 hexadecimal digits at its end";
        }
        *end = '\0';
    } else {
        if (strlen(at) < HASH_DIGITS || !take_hash(at, entry->hash)) {
            return "does not begin with a SHA-256 of 64 hexadecimal digits";
        }
        at += HASH_DIGITS;
        if (at[0] != ' ' || (at[1] != ' ' && at[1] != '*')) {
            return "has neither two spaces nor a space and an asterisk behind its hash";
        }
        name = at + 2;
    }
    if (name[0] == '\0') {
        return "names no file";
    }
    if (escaped && !unescape(name)) {
        return "has a backslash in its name that means nothing";
    }
    entry->name = strdup(name);
    return entry->name != NULL ? NULL : "does not fit in memory";
}

static int add_entry(struct verify_list *list, const struct verify_entry *entry)
{
    if ((list->count & (list->count - 1)) == 0) { /* full at powers of two */
        size_t capacity = list->count == 0 ? 1 : (size_t)list->count * 2;
        struct verify_entry *larger = realloc(list->entry, capacity * sizeof *larger);
        if (larger == NULL) {
            free(entry->name);
            return err_set(ERR_MEMORY, "no memory for a list of checksums");
        }
        list->entry = larger;
    }
    list->entry[list->count++] = *entry;
    return 0;
}

static int read_line(struct verify *v, const char *path, char *text, size_t size_bytes,
                     uint32_t line, struct verify_list *out)
{
    struct verify_entry entry = {.line = line};
    if (size_bytes > 0 && text[size_bytes - 1] == '\r') {
        text[--size_bytes] = '\0'; /* it was written, or sent, by another system */
    }
    if (size_bytes == 0 || text[0] == '#') {
        return 0;
    }
    char shown[SHOWN_BYTES + 1];
    snprintf(shown, sizeof shown, "%s", text);
    const char *wrong = strlen(text) != size_bytes ? "holds a zero byte" : take_line(text, &entry);
    if (wrong != NULL) {
        verify_say(v, VERIFY_BAD, "list", "%s: line %u %s: %s%s", path, line, wrong, shown,
                   size_bytes > SHOWN_BYTES ? ".." : "");
        return 0;
    }
    return add_entry(out, &entry);
}

/* A list that cannot be read is no fault of the model. */
static int read_text(const char *path, struct file_text *file)
{
    int rc = file_read(path, LIST_CAP_BYTES, file);
    if (rc == ERR_MODEL) {
        char text[ERR_MESSAGE_BYTES];
        snprintf(text, sizeof text, "%s", err_message());
        err_clear();
        return err_set(ERR_IO, "--checksums: %s", text);
    }
    return rc;
}

int verify_list_read(struct verify *v, const char *path, struct verify_list *out)
{
    struct file_text file;
    *out = (struct verify_list){.entry = NULL};
    TRY(read_text(path, &file));
    int rc = 0;
    uint32_t line = 1;
    char *end = file.text + file.size_bytes;
    for (char *at = file.text; rc == 0 && at < end; line++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        if (stop < end) {
            *stop = '\0';
        }
        rc = read_line(v, path, at, (size_t)(stop - at), line, out);
        at = stop + 1;
    }
    file_text_free(&file);
    if (rc == 0 && out->count == 0) {
        verify_say(v, VERIFY_BAD, "list", "%s: holds no checksum: give a list as sha256sum "
                   "writes it", path);
    }
    return rc;
}

void verify_list_free(struct verify_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->entry[i].name);
    }
    free(list->entry);
    *list = (struct verify_list){.entry = NULL};
}

void verify_list_write(FILE *out, const unsigned char hash[VERIFY_HASH_BYTES], const char *name)
{
    fputs(strpbrk(name, "\\\n\r") != NULL ? "\\" : "", out);
    for (uint32_t i = 0; i < VERIFY_HASH_BYTES; i++) {
        fprintf(out, "%02x", hash[i]);
    }
    fputs("  ", out);
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '\\' || *at == '\n' || *at == '\r') {
            fputc('\\', out);
            fputc(*at == '\n' ? 'n' : *at == '\r' ? 'r' : '\\', out);
        } else {
            fputc(*at, out);
        }
    }
    fputc('\n', out);
}
