/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a manifest's text apart, and the ranges it claims. */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/model/pack_priv.h"

#undef pack_refuse

int pack_refuse(const struct pack_reader *r, const char *what)
{
    return err_set(ERR_MODEL, "%s: byte %zu: %s; " PACK_AGAIN, r->path, scan_offset(&r->scan),
                   what);
}

/* 0, or what the scanner found. */
int pack_settled(const struct pack_reader *r)
{
    return r->scan.fault == NULL ? 0 : pack_refuse(r, r->scan.fault);
}

int pack_take(struct pack_reader *r, char c)
{
    scan_expect(&r->scan, c);
    return pack_settled(r);
}

int pack_take_text(struct pack_reader *r, char *text, size_t capacity_bytes)
{
    scan_string(&r->scan, text, capacity_bytes);
    return pack_settled(r);
}

int pack_take_number(struct pack_reader *r, uint64_t most, uint64_t *value)
{
    if (scan_u64(&r->scan, value) && *value > most) {
        return pack_refuse(r, "a number is larger than can be");
    }
    return pack_settled(r);
}

/* A comma, then a number. */
int pack_next_number(struct pack_reader *r, uint64_t most, uint64_t *value)
{
    TRY(pack_take(r, ','));
    return pack_take_number(r, most, value);
}

/* Sixteen hexadecimal digits. */
int pack_take_hash(struct pack_reader *r, uint64_t *value)
{
    char text[32];
    TRY(pack_take_text(r, text, sizeof text));
    *value = 0;
    for (size_t i = 0; i < 16; i++) {
        const char *digits = "0123456789abcdef";
        const char *at = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (at == NULL) {
            return pack_refuse(r, "a checksum is not 16 hexadecimal digits");
        }
        *value = *value << 4 | (uint64_t)(at - digits);
    }
    return text[16] == '\0' ? 0 : pack_refuse(r, "a checksum is not 16 hexadecimal digits");
}

int pack_next_hash(struct pack_reader *r, uint64_t *value)
{
    TRY(pack_take(r, ','));
    return pack_take_hash(r, value);
}

/* The key of the next member, which must be this one. */
int pack_member(struct pack_reader *r, const char *name)
{
    char key[64];
    if (strcmp(name, "format") != 0) {
        TRY(pack_take(r, ','));
    }
    scan_key(&r->scan, key, sizeof key);
    TRY(pack_settled(r));
    if (strcmp(key, name) != 0) {
        char what[160];
        snprintf(what, sizeof what, "'%s' stands where '%s' should", key, name);
        return pack_refuse(r, what);
    }
    return 0;
}

bool pack_next_item(struct pack_reader *r, bool *first)
{
    return scan_next(&r->scan, ']', first);
}

/* file, offset: a range of size_bytes that begins at a page behind all read before. */
int pack_claim(struct pack_reader *r, uint64_t file, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (file >= r->model->file_count) {
        return pack_refuse(r, "a range is of no file");
    }
    uint64_t whole = r->model->files[file].size_bytes;
    if (offset_bytes % PAGE_BYTES != 0 || size_bytes == 0 || size_bytes > whole ||
        offset_bytes > whole - size_bytes) {
        return pack_refuse(r, "a range is not on a page or ends past its file");
    }
    if (offset_bytes < r->end_bytes[file]) {
        return pack_refuse(r, "a range overlaps another or is out of order");
    }
    r->end_bytes[file] = offset_bytes + size_bytes;
    return 0;
}

