/* SPDX-License-Identifier: Apache-2.0 */
/* The page, and the same as one JSON object. */
#include <math.h>
#include <string.h>

#include "core/cli/commands.h"
#include "core/cli/doctor.h"
#include "core/cli/text.h"

static const char *const section_names[DOCTOR_SECTIONS] = {
    [DOCTOR_SYSTEM] = "system", [DOCTOR_RING] = "io_uring", [DOCTOR_MEMORY] = "memory",
    [DOCTOR_FILES] = "files",   [DOCTOR_DRIVES] = "drives", [DOCTOR_PROBE] = "probe"};
static const char *const mark_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_PROBLEM] = "problem"};

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)GIB;
}

static bool bound_by_drive(const struct doctor_row *row)
{
    return row->drive_s >= row->memory_s;
}

/* It may name files. */
static void put_line(FILE *out, const char *text)
{
    text_put(out, text, NULL, 0, false);
    fputc('\n', out);
}

static void print_lines(FILE *out, const struct doctor *d, enum doctor_section section)
{
    bool begun = false;
    for (uint32_t i = 0; i < d->line_count; i++) {
        const struct doctor_line *line = &d->line[i];
        if (line->section == section) {
            if (!begun) {
                fprintf(out, "%s\n", section_names[section]);
                begun = true;
            }
            fprintf(out, "  %-8s ", mark_names[line->mark]);
            put_line(out, line->text);
            if (line->remedy[0] != '\0') {
                fputs("           -> ", out);
                put_line(out, line->remedy);
            }
        }
    }
}

static void print_row(FILE *out, const struct doctor *d, const struct doctor_row *row)
{
    static const char *const names[] = {
        [DOCTOR_FLOOR] = "  floor", [DOCTOR_POWER] = "", [DOCTOR_ALL] = "  all of the model"};
    bool timed = d->trunk_gbps > 0;
    char ram[32];
    snprintf(ram, sizeof ram, row->size == DOCTOR_POWER ? "%.0fG" : "%.2fG", gib(row->ram_bytes));
    fprintf(out, "  %10s %12.2f %12.2f", ram, (double)row->trunk_bytes / 1e9,
            (double)row->expert_bytes / 1e9);
    if (timed) {
        fprintf(out, " %12.3f %s", fmax(row->drive_s, row->memory_s),
                bound_by_drive(row) ? "drive" : "memory");
    }
    fprintf(out, "%s%s\n", names[row->size], row->fits ? "" : "  (more than there is now)");
}

static void print_dial(FILE *out, const struct doctor *d)
{
    fprintf(out, "RAM dial of %s, one token at a time: GB read from the drive for each\n",
            d->dir != NULL ? "the model" : "Kimi K3");
    fprintf(out, "  %10s %12s %12s%s\n", "--ram", "trunk GB", "experts GB",
            d->trunk_gbps > 0 ? "      seconds bound by" : "");
    for (uint32_t i = 0; i < d->row_count; i++) {
        print_row(out, d, &d->row[i]);
    }
    if (d->trunk_gbps > 0) {
        fprintf(out, "  at %.2f GB/s in file order and %.2f GB/s at experts", d->trunk_gbps,
                d->expert_gbps);
    } else {
        fputs("  seconds per token: GB divided by the GB/s of the drive", out);
    }
    if (d->memory_gbps > 0 && d->row_count > 0) {
        fprintf(out, "; memory is read at %.1f GB/s, so never below %.3f s", d->memory_gbps,
                d->row[0].memory_s);
    }
    fputs("\n  cached experts count as if all were asked for equally often\n", out);
}

void doctor_print(FILE *out, const struct doctor *d)
{
    for (int section = 0; section < DOCTOR_SECTIONS; section++) {
        print_lines(out, d, (enum doctor_section)section);
    }
    print_dial(out, d);
    uint32_t notes = doctor_count(d, DOCTOR_NOTE);
    uint32_t problems = doctor_count(d, DOCTOR_PROBLEM);
    fprintf(out, "%u ok, %u note%s, %u problem%s; next:\n  ", doctor_count(d, DOCTOR_OK), notes,
            notes == 1 ? "" : "s", problems, problems == 1 ? "" : "s");
    put_line(out, d->next);
}

/* ---- JSON ---- */

/* null when it is not known. */
static void add_measured(cJSON *object, const char *name, bool known, double value)
{
    if (known && !isnan(value)) {
        cJSON_AddNumberToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

static void add_checks(cJSON *root, const struct doctor *d)
{
    cJSON *checks = cJSON_AddArrayToObject(root, "checks");
    for (uint32_t i = 0; i < d->line_count; i++) {
        const struct doctor_line *line = &d->line[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "section", section_names[line->section]);
        cJSON_AddStringToObject(one, "mark", mark_names[line->mark]);
        cJSON_AddBoolToObject(one, "prevents_run", line->prevents);
        cJSON_AddStringToObject(one, "text", line->text);
        cJSON_AddStringToObject(one, "remedy", line->remedy);
        cJSON_AddItemToArray(checks, one);
    }
}

static void add_probe(cJSON *root, const struct doctor *d)
{
    cJSON *probe = cJSON_AddArrayToObject(root, "probe");
    for (uint32_t i = 0; i < d->env.place_count; i++) {
        const struct doctor_rate *r = &d->rate[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "file_system", i);
        cJSON_AddBoolToObject(one, "measured", r->measured);
        cJSON_AddStringToObject(one, "why_not", r->measured ? "" : r->why_not);
        cJSON_AddStringToObject(one, "engine", r->engine);
        add_measured(one, "trunk_bw_bytes", r->measured, r->trunk_gbps * 1e9);
        add_measured(one, "expert_bw_bytes", r->measured, r->expert_gbps * 1e9);
        cJSON_AddNumberToObject(one, "read_bytes", (double)r->bytes);
        add_measured(one, "temp_c_before", r->measured, r->celsius[0]);
        add_measured(one, "temp_c_after", r->measured, r->celsius[1]);
        cJSON_AddItemToArray(probe, one);
    }
}

static void add_dial(cJSON *root, const struct doctor *d)
{
    static const char *const sizes[] = {
        [DOCTOR_FLOOR] = "floor", [DOCTOR_POWER] = "size", [DOCTOR_ALL] = "all"};
    bool timed = d->trunk_gbps > 0;
    cJSON *dial = cJSON_AddArrayToObject(root, "dial");
    for (uint32_t i = 0; i < d->row_count; i++) {
        const struct doctor_row *row = &d->row[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "row", sizes[row->size]);
        cJSON_AddNumberToObject(one, "ram_bytes", (double)row->ram_bytes);
        cJSON_AddBoolToObject(one, "fits", row->fits);
        cJSON_AddNumberToObject(one, "trunk_bytes", (double)row->trunk_bytes);
        cJSON_AddNumberToObject(one, "expert_bytes", (double)row->expert_bytes);
        cJSON_AddNumberToObject(one, "computed_bytes", (double)row->computed_bytes);
        add_measured(one, "drive_seconds", timed, row->drive_s);
        add_measured(one, "memory_seconds", d->memory_gbps > 0, row->memory_s);
        add_measured(one, "seconds_per_token", timed, fmax(row->drive_s, row->memory_s));
        if (timed) {
            cJSON_AddStringToObject(one, "bound_by", bound_by_drive(row) ? "drive" : "memory");
        } else {
            cJSON_AddNullToObject(one, "bound_by");
        }
        cJSON_AddItemToArray(dial, one);
    }
}

cJSON *doctor_json(const struct doctor *d)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) {
        return NULL;
    }
    cJSON_AddStringToObject(root, "k3ring", k3ring_version);
    if (d->dir != NULL) {
        cJSON_AddStringToObject(root, "model", d->dir);
    } else {
        cJSON_AddNullToObject(root, "model");
    }
    environment_json(root, &d->env);
    environment_gates_json(root, "gates", d->gate, d->gate_count);
    add_checks(root, d);
    add_probe(root, d);
    add_measured(root, "memory_bw_bytes", d->memory_gbps > 0, d->memory_gbps * 1e9);
    add_dial(root, d);
    cJSON_AddStringToObject(root, "next", d->next);
    return root;
}
