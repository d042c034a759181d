/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/model/model_priv.h"

#define ONLY_SAFETENSORS "only the safetensors files of the release are supported"
#define SERVER_ERROR "fetch it again, signed in if the repository asks for it"
#define EXPAND "expand it, or fetch the file itself"

static bool begins(const char *head, size_t head_bytes, const char *with)
{
    const size_t length = strlen(with);
    return head_bytes >= length && strncasecmp(head, with, length) == 0;
}

int foreign_check(const char *path, const char *head, size_t head_bytes, uint64_t size_bytes)
{
    static const struct {
        const char *magic, *what, *cure;
    } kinds[] = {
        {"version https://git-lfs", "a Git LFS pointer, not the file itself",
         "fetch it with 'git lfs pull' or 'hf download'"},
        {"<!doctype", "an HTML page, probably an error of the server it came from", SERVER_ERROR},
        {"<html", "an HTML page, probably an error of the server it came from", SERVER_ERROR},
        {"<?xml", "an XML text, probably an error of the server it came from", SERVER_ERROR},
        {"<error>", "an XML text, probably an error of the server it came from", SERVER_ERROR},
        {"{\"error\"", "an error of the server it came from", SERVER_ERROR},
        {"HTTP/", "an answer of a server, header and all", SERVER_ERROR},
        {"\x1f\x8b", "compressed by gzip", EXPAND},
        {"\x28\xb5\x2f\xfd", "compressed by zstd", EXPAND},
        {"\xfd" "7zXZ", "compressed by xz", EXPAND},
        {"\x89HDF", "an HDF5 file", ONLY_SAFETENSORS},
        {"GGUF", "a GGUF file", ONLY_SAFETENSORS},
        {"PK\003\004", "a zip archive (a PyTorch file, perhaps)", ONLY_SAFETENSORS},
    };
    size_t blank = 0;
    while (blank < head_bytes && strchr(" \t\r\n", head[blank]) != NULL && head[blank] != '\0') {
        blank++;
    }
    if (size_bytes == 0) {
        return err_set(ERR_MODEL, "%s: is empty (0 bytes): fetch it again", path);
    }
    for (size_t i = 0; i < countof(kinds); i++) {
        if (begins(head + blank, head_bytes - blank, kinds[i].magic)) {
            return err_set(ERR_MODEL, "%s: is %s (%llu bytes): %s", path, kinds[i].what,
                           (unsigned long long)size_bytes, kinds[i].cure);
        }
    }
    return 0;
}
