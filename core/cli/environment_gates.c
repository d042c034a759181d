/* SPDX-License-Identifier: Apache-2.0 */
/* What is known before a run and speaks against its figures. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/environment_priv.h"

#define HOLES_SHARE 1000U /* more than one byte in so many: most reads may meet one */

struct gates {
    struct environment_gate *gate;
    uint32_t count;
};

static void add(struct gates *g, const char *code, enum environment_severity severity,
                const char *format, ...) __attribute__((format(printf, 4, 5)));

static void add(struct gates *g, const char *code, enum environment_severity severity,
                const char *format, ...)
{
    if (g->count == ENVIRONMENT_GATES_MAX) {
        return;
    }
    struct environment_gate *gate = &g->gate[g->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(gate->reason, sizeof gate->reason, format, args);
    va_end(args);
    gate->code = code;
    gate->severity = severity;
}

static void judge_nature(struct gates *g, const struct environment_place *p)
{
    const char *name = p->lower[0] != '\0' ? p->lower : p->file_system;
    switch (p->nature) {
    case NATURE_MEMORY:
        add(g, "memory", GATE_INVALID, "%u files lie in memory (%s), not on a drive", p->files,
            name);
        break;
    case NATURE_TRANSFORMING:
        add(g, "transformed", GATE_INVALID, "%s %s: bytes read are not the bytes that lie on the "
            "drive", name, p->compressed ? "compresses these files" : "transforms what it reads, "
            "or keeps it in memory of its own");
        break;
    case NATURE_REMOTE:
        add(g, "remote", GATE_INVALID, "%s is answered by another machine or program, not by a "
            "drive here", name);
        break;
    case NATURE_DRIVE:
        break;
    }
}

static void judge_place(struct gates *g, const struct environment_place *p)
{
    judge_nature(g, p);
    if (p->holes_bytes > 0) {
        bool many = p->holes_bytes > p->bytes / HOLES_SHARE;
        add(g, "holes", many ? GATE_INVALID : GATE_WARNING, "%.2f GB of the %.2f GB of files on %s "
            "are holes: no drive is asked for them", (double)p->holes_bytes / 1e9,
            (double)p->bytes / 1e9, p->file_system);
    }
    if (p->direct_files < p->files && p->nature != NATURE_MEMORY) {
        add(g, "buffered", GATE_INVALID, "%s takes no direct reads for %u of %u files: they pass "
            "through the page cache", p->file_system, p->files - p->direct_files, p->files);
    }
    if (p->encrypted) {
        add(g, "encrypted", GATE_WARNING, "%s encrypts these files: processors take part in every "
            "read", p->file_system);
    }
    if (p->nature == NATURE_DRIVE && p->top == ENVIRONMENT_NONE) {
        add(g, "no_drive", GATE_WARNING, "%s shows no block device, so no counters can confirm "
            "what a drive delivered", p->file_system);
    }
}

/* A drive slower than it could be: because of what it is plugged into, or for no such reason. */
static void judge_link(struct gates *g, const struct environment_device *d)
{
    const struct environment_link *now = &d->link;
    const struct environment_link *most = &d->link_max;
    uint64_t slot = d->slot_max.bytes_per_s;
    if (now->bytes_per_s == 0 || now->bytes_per_s >= most->bytes_per_s) {
        return;
    }
    bool slot_is_all = slot > 0 && slot <= now->bytes_per_s;
    add(g, "link", GATE_WARNING, "%s: its PCIe link runs at %s x%u of %s x%u, at most %.1f GB/s; "
        "%s", d->name, now->speed, now->width, most->speed, most->width,
        (double)now->bytes_per_s / 1e9, slot_is_all
            ? "the slot allows no more" : "reseat the drive, or see what else shares its lanes");
}

static void judge_device(struct gates *g, const struct environment_device *d)
{
    judge_link(g, d);
    if (d->kind == DEVICE_MEMORY) {
        add(g, "memory", GATE_INVALID, "%s is a block device in memory, not a drive", d->name);
    }
    if (d->kind == DEVICE_CRYPT) {
        add(g, "dm_crypt", GATE_WARNING, "%s is encrypted by dm-crypt: processors take part in "
            "every read", d->name);
    }
    if (d->kind == DEVICE_LOOP) {
        add(g, "loop", GATE_WARNING, "%s is a file used as a device: its reads pass another file "
            "system", d->name);
    }
    if (d->io_max[0] != '\0') {
        add(g, "io_max", GATE_WARNING, "%s: a control group limits reads: %s", d->name, d->io_max);
    }
}

uint32_t environment_gates(const struct environment *env,
                           struct environment_gate gates[ENVIRONMENT_GATES_MAX])
{
    struct gates g = {.gate = gates};
    for (uint32_t i = 0; i < env->place_count; i++) {
        judge_place(&g, &env->place[i]);
    }
    for (uint32_t i = 0; i < env->device_count; i++) {
        judge_device(&g, &env->device[i]);
    }
    return g.count;
}
