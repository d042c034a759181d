/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a model: which file systems and drives they lie on, and what is wrong with these. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cli/doctor.h"
#include "core/cli/engine_options.h"

#define COMMAND_KIB_LEAST 512U /* smaller commands cost more than they should */
#define HOT_CELSIUS 70.0

/* ---- file systems ---- */

/* Of the files on a place, how many are symbolic links where the model has them. */
static uint32_t links_on(const struct doctor *d, uint32_t place)
{
    uint32_t links = 0;
    struct stat st;
    for (uint32_t i = 0; i < d->files.count; i++) {
        const struct io_file *file = &d->files.file[i];
        links += file->device == place && lstat(file->path, &st) == 0 && S_ISLNK(st.st_mode);
    }
    return links;
}

static void say_place(struct doctor *d, uint32_t index)
{
    const struct environment_place *p = &d->env.place[index];
    char lower[ENVIRONMENT_NAME_BYTES + 16] = "";
    char links[32] = "";
    if (p->lower[0] != '\0') {
        snprintf(lower, sizeof lower, " over %s", p->lower);
    }
    uint32_t linked = links_on(d, index);
    if (linked > 0) {
        snprintf(links, sizeof links, " (%u by links)", linked);
    }
    doctor_say(d, DOCTOR_FILES, DOCTOR_OK, NULL, "%s%s on %s: %u files%s, %.2f GB; O_DIRECT on %u, "
               "alignment %u; holes %.2f GB; mounted %s", p->file_system, lower,
               p->top != ENVIRONMENT_NONE ? d->env.device[p->top].name : "no block device",
               p->files, links, (double)p->bytes / 1e9, p->direct_files, p->alignment,
               (double)p->holes_bytes / 1e9, p->options[0] != '\0' ? p->options : "(unknown)");
}

/* ---- gates ---- */

static const struct {
    const char *code;
    enum doctor_section section;
    enum doctor_mark mark;
    const char *remedy;
} cures[] = {
    {"memory", DOCTOR_FILES, DOCTOR_NOTE, NULL},
    {"transformed", DOCTOR_FILES, DOCTOR_NOTE, "copy the model to ext4 or xfs, or to a folder "
     "without compression (chattr +m, then copy anew)"},
    {"remote", DOCTOR_FILES, DOCTOR_NOTE, "copy the model to a drive of this machine"},
    {"holes", DOCTOR_FILES, DOCTOR_PROBLEM, "download what is missing again; cp --sparse=never "
     "copies without holes"},
    {"buffered", DOCTOR_FILES, DOCTOR_PROBLEM, "copy the model to ext4 or xfs"},
    {"encrypted", DOCTOR_FILES, DOCTOR_NOTE, NULL},
    {"no_drive", DOCTOR_FILES, DOCTOR_NOTE, NULL},
    {"dm_crypt", DOCTOR_DRIVES, DOCTOR_NOTE, "cryptsetup refresh --perf-no_read_workqueue NAME "
     "shortens the way of reads"},
    {"loop", DOCTOR_DRIVES, DOCTOR_NOTE, "losetup --direct-io=on"},
    {"link", DOCTOR_DRIVES, DOCTOR_NOTE, NULL},
    {"io_max", DOCTOR_DRIVES, DOCTOR_PROBLEM, "raise io.max of the group, or run outside of it"},
};

static void say_gate(struct doctor *d, const struct environment_gate *gate)
{
    for (size_t i = 0; i < countof(cures); i++) {
        if (strcmp(cures[i].code, gate->code) != 0) {
            continue;
        }
        bool holes = strcmp(gate->code, "holes") == 0;
        if (holes && !d->synthetic) {
            doctor_forbid(d, DOCTOR_FILES, cures[i].remedy, "%s", gate->reason);
        } else {
            doctor_say(d, cures[i].section, holes ? DOCTOR_NOTE : cures[i].mark,
                       holes ? NULL : cures[i].remedy, "%s%s", gate->reason,
                       holes ? ", as a synthetic model may have" : "");
        }
    }
}

void doctor_check_files(struct doctor *d)
{
    if (d->dir == NULL) {
        doctor_say(d, DOCTOR_FILES, DOCTOR_NOTE, NULL, "no MODEL was named: no file and no drive "
                   "is looked at");
        return;
    }
    for (uint32_t i = 0; i < d->env.place_count; i++) {
        say_place(d, i);
    }
    for (uint32_t i = 0; i < d->gate_count; i++) {
        say_gate(d, &d->gate[i]);
    }
}

/* ---- drives ---- */

static void say_drive(struct doctor *d, uint32_t index)
{
    const struct environment_device *v = &d->env.device[index];
    double celsius = environment_device_temperature(&d->env, index);
    char link[192] = "";
    char warm[32] = "";
    bool hot = celsius >= HOT_CELSIUS;
    if (v->link.bytes_per_s > 0) {
        snprintf(link, sizeof link, "; %s x%u, at most %.1f GB/s", v->link.speed, v->link.width,
                 (double)v->link.bytes_per_s / 1e9);
    }
    if (!isnan(celsius)) {
        snprintf(warm, sizeof warm, "; %.0f C", celsius);
    }
    doctor_say(d, DOCTOR_DRIVES, hot ? DOCTOR_NOTE : DOCTOR_OK,
               hot ? "cool it: drives slow down to protect themselves" : NULL,
               "%s: %s%s%s%s%s", v->name, v->model[0] != '\0' ? v->model : "tells no model",
               v->firmware[0] != '\0' ? ", firmware " : "", v->firmware, link, warm);
}

static void say_queue(struct doctor *d, const struct environment_device *v)
{
    uint64_t flight_kib = ENGINE_IO_DEPTH * ENGINE_IO_SIZE / KIB;
    bool cut = v->max_sectors_kb > 0 && v->max_sectors_kb < COMMAND_KIB_LEAST;
    bool full = v->max_sectors_kb > 0 && v->nr_requests > 0 &&
                flight_kib / v->max_sectors_kb > v->nr_requests / 2;
    bool scheduled = v->rotational == 0 && v->scheduler[0] != '\0' &&
                     strcmp(v->scheduler, "none") != 0;
    char remedy[ENVIRONMENT_TEXT_BYTES] = "";
    if (cut && v->max_hw_sectors_kb > v->max_sectors_kb) {
        snprintf(remedy, sizeof remedy, "echo %u > /sys/block/%s/queue/max_sectors_kb (as root)",
                 (uint32_t)min_u64(v->max_hw_sectors_kb, 4096), v->name);
    } else if (cut) {
        snprintf(remedy, sizeof remedy, "iommu=pt on the kernel's command line, where that is "
                 "safe: the IOMMU cuts requests");
    } else if (scheduled) {
        snprintf(remedy, sizeof remedy, "echo none > /sys/block/%s/queue/scheduler (as root)",
                 v->name);
    } else if (full) {
        snprintf(remedy, sizeof remedy, "--io-depth 4: submitting waits while more than half of "
                 "nr_requests is taken");
    }
    doctor_say(d, DOCTOR_DRIVES, remedy[0] != '\0' ? DOCTOR_NOTE : DOCTOR_OK, remedy,
               "%s queue: commands of %u KiB (the drive takes %u), %u segments, %u requests, "
               "scheduler %s", v->name, v->max_sectors_kb, v->max_hw_sectors_kb, v->max_segments,
               v->nr_requests, v->scheduler[0] != '\0' ? v->scheduler : "none");
    if (v->rotational == 1 && v->model[0] != '\0') { /* virtual disks all say so */
        doctor_say(d, DOCTOR_DRIVES, DOCTOR_PROBLEM, "use an SSD", "%s says that it spins",
                   v->name);
    }
}

void doctor_check_drives(struct doctor *d)
{
    for (uint32_t i = 0; i < d->env.device_count; i++) {
        const struct environment_device *v = &d->env.device[i];
        if (environment_lowest(&d->env, i)) {
            say_drive(d, i);
            say_queue(d, v);
        } else {
            doctor_say(d, DOCTOR_DRIVES, DOCTOR_OK, NULL, "%s: %s over other devices", v->name,
                       environment_kind_name(v->kind));
        }
    }
}
