/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel and processors; whether a ring really opens; memory and huge pages. */
#include <stdlib.h>
#include <string.h>

#include "cache/slab.h"
#include "core/base/memory.h"
#include "core/cli/doctor.h"
#include "core/cli/engine_options.h"

#define K3_SHARDS 96U /* files of the released checkpoint */
#define OWN_FILES 16U /* rings, reports, what is looked at under /proc and /sys */
#define FLIGHT_BYTES (ENGINE_IO_DEPTH * ENGINE_IO_SIZE)

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)GIB;
}

static void say_processors(struct doctor *d)
{
    const struct environment_system *s = &d->env.system;
    bool wide = strstr(s->features, "avx2") != NULL && strstr(s->features, "fma") != NULL;
    doctor_say(d, DOCTOR_SYSTEM, DOCTOR_OK, NULL, "Linux %s", s->kernel);
    doctor_say(d, DOCTOR_SYSTEM, wide ? DOCTOR_OK : DOCTOR_PROBLEM,
               wide ? NULL : "use a processor with AVX2 and FMA: scalar kernels are many times "
                             "slower",
               "%s: %u processors for this process, %s", s->cpu[0] != '\0' ? s->cpu : "processor",
               s->processors, s->features[0] != '\0' ? s->features : "no vector instructions");
    if (s->numa_nodes > 1) {
        doctor_say(d, DOCTOR_SYSTEM, DOCTOR_NOTE, "numactl --cpunodebind --membind keeps a run on "
                   "the node that the drive hangs on", "%u NUMA nodes", s->numa_nodes);
    }
}

/* ---- rings ---- */

/* Messages of io are "what; cure". */
static void say_refused(struct doctor *d)
{
    char text[DOCTOR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", err_message());
    char *cure = strstr(text, "; ");
    if (cure != NULL) {
        *cure = '\0';
        cure += 2;
    }
    err_clear();
    doctor_say(d, DOCTOR_RING, DOCTOR_PROBLEM, cure, "%s: reads go through a pool of threads "
               "instead, which costs processor time", text);
}

static void say_registered(struct doctor *d, struct io *io, const struct slab *slab)
{
    const struct slab_slice *slice = slab_slice(slab, 0);
    uint64_t lockable = memory_lockable();
    bool all = lockable == UINT64_MAX;
    const char *cure = "ulimit -l unlimited, or LimitMEMLOCK=infinity in its unit";
    if (slice->size_bytes > lockable) {
        doctor_say(d, DOCTOR_RING, DOCTOR_NOTE, cure, "buffers cannot be registered, since only "
                   "%llu KiB may be locked: reads work without, at some processor time for each",
                   (unsigned long long)(lockable / KIB));
        return;
    }
    int rc = io_register_buffer(io, 0, slice->base, slice->size_bytes);
    if (rc < 0) {
        doctor_say(d, DOCTOR_RING, DOCTOR_NOTE, cure, "buffers cannot be registered (%s): reads "
                   "work without, at some processor time for each", strerror(-rc));
    } else {
        doctor_say(d, DOCTOR_RING, all ? DOCTOR_OK : DOCTOR_NOTE, all ? NULL : cure,
                   all ? "buffers can be registered: %.2f GiB were, and there is no limit"
                       : "buffers can be registered up to %.2f GiB, all of a run or none",
                   gib(all ? slice->size_bytes : lockable));
    }
}

static void say_ring(struct doctor *d, const struct slab *slab)
{
    struct io *io;
    struct io_options options = {.engine = IO_URING, .depth = ENGINE_IO_DEPTH, .buffer_count = 1};
    if (io_open(&io, &options, &d->files) < 0) {
        say_refused(d);
        return;
    }
    doctor_say(d, DOCTOR_RING, DOCTOR_OK, NULL, "a ring for %u reads opens: %s", ENGINE_IO_DEPTH,
               io_features(io)[0] != '\0' ? io_features(io) : "without newer features");
    say_registered(d, io, slab);
    io_close(io);
}

/* A descriptor for each shard, and some for rings, reports and standard streams. */
static void say_files(struct doctor *d)
{
    uint64_t may = d->env.system.nofile;
    uint32_t shards = d->files.count > 0 ? d->files.count : K3_SHARDS;
    if (may >= shards + OWN_FILES) {
        doctor_say(d, DOCTOR_RING, DOCTOR_OK, NULL, "%llu files may be open, a run needs %u",
                   (unsigned long long)may, shards + OWN_FILES);
    } else {
        doctor_forbid(d, DOCTOR_RING, "raise the hard limit: ulimit -Hn 1024 as root, LimitNOFILE= "
                      "of a service, or /etc/security/limits.conf",
                      "%llu files may be open, but a run needs %u: %u shards, and some of its own",
                      (unsigned long long)may, shards + OWN_FILES, shards);
    }
}

static void say_limits(struct doctor *d)
{
    const struct environment_system *s = &d->env.system;
    static const char *const modes[] = {"off", "strict", "filtered, as containers do"};
    doctor_say(d, DOCTOR_RING, DOCTOR_OK, NULL, "kernel.io_uring_disabled %s, seccomp %s",
               s->io_uring_disabled < 0 ? "does not exist" : s->io_uring_disabled == 0 ? "0"
               : s->io_uring_disabled == 1 ? "1" : "2",
               s->seccomp < 0 ? "unknown" : modes[s->seccomp]);
    say_files(d);
}

/* ---- memory ---- */

static void say_memory(struct doctor *d)
{
    const struct environment_system *s = &d->env.system;
    doctor_say(d, DOCTOR_MEMORY, DOCTOR_OK, NULL, "%.2f GiB, of which %.2f GiB can be taken (%s)",
               gib(s->memory_bytes), gib(s->available_bytes), s->available_why);
    if (s->huge_free_bytes > 0) {
        doctor_say(d, DOCTOR_MEMORY, DOCTOR_NOTE, "sysctl vm.nr_hugepages=0, if nothing else needs "
                   "them", "%.2f GiB are reserved as huge pages, which k3ring does not use",
                   gib(s->huge_free_bytes));
    }
}

static void say_huge(struct doctor *d, const struct slab *slab)
{
    struct slab_statement got;
    slab_state(slab, &got);
    bool huge = got.huge_bytes >= got.mapped_bytes / 10 * 9;
    bool never = strcmp(d->env.system.thp, "never") == 0;
    doctor_say(d, DOCTOR_MEMORY, huge ? DOCTOR_OK : DOCTOR_PROBLEM,
               huge ? NULL
               : never ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"
                       : "free some memory: it is too scattered for huge pages",
               "transparent huge pages: %s; %llu of %llu MiB asked for were obtained",
               d->env.system.thp[0] != '\0' ? d->env.system.thp : "unknown",
               (unsigned long long)(got.huge_bytes / MIB),
               (unsigned long long)(got.mapped_bytes / MIB));
}

int doctor_check_system(struct doctor *d)
{
    struct slab *slab;
    TRY(slab_open(&slab, &(struct slab_layout){.rows_bytes = FLIGHT_BYTES}));
    say_processors(d);
    say_ring(d, slab);
    say_limits(d);
    say_memory(d);
    say_huge(d, slab);
    slab_close(slab);
    return 0;
}
