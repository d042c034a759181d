/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/bench_sample.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MS 100U
#define READS 200U        /* of the stretch */
#define READ_BYTES 4000000U
#define MS 1000000ULL

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* reads of READ_BYTES that took from 3 to 5 ms, and one of 20. */
static void fill_figures(struct io_figures *f, uint64_t wall_ns, uint64_t busy_ns, uint32_t reads)
{
    *f = (struct io_figures){.wall_ns = wall_ns, .busy_ns = busy_ns, .requests = reads,
                             .bytes = (uint64_t)reads * READ_BYTES,
                             .flight_bytes_mean = 3.5 * READ_BYTES,
                             .flight_bytes_max = 4ULL * READ_BYTES};
    for (uint32_t i = 0; i < reads; i++) {
        uint64_t slat_ns = 10000 + 37 * i;
        uint64_t clat_ns = i + 1 == reads ? 20 * MS : 3 * MS + 2 * MS * i / reads;
        histogram_add(&f->slat, slat_ns);
        histogram_add(&f->clat, clat_ns);
        histogram_add(&f->lat, slat_ns + clat_ns);
    }
    f->flight_ns[3] = busy_ns;
    f->depth[0] = reads / 4;
    f->depth[2] = reads - reads / 4;
    f->submit[1] = f->complete[1] = reads;
}

static void fill_job(struct bench_job *job, uint64_t wall_ns, uint64_t busy_ns, uint32_t reads)
{
    job->made = true;
    job->begun_s = 1764547200;
    job->begun_ms = job->begun_s * 1000 + 123;
    fill_figures(&job->all, wall_ns, busy_ns, reads);
    fill_figures(&job->class[READ_TRUNK], wall_ns, busy_ns / 2, reads / 2);
    fill_figures(&job->class[READ_EXPERTS], wall_ns, busy_ns / 2, reads - reads / 2);
    for (uint32_t i = 0; i < 2; i++) {
        fill_figures(&job->device[i], wall_ns, busy_ns, reads / 2);
    }
    job->usage = (struct bench_usage){0.5, 0.25, 1000, 50, 7000, 1};
    job->took_ns = wall_ns;
    job->requested_bytes = job->all.bytes;
    job->disk_known = true;
    job->disk.known = true;
    job->disk.files.read_ios = job->all.requests * 4;
    job->disk.files.read_sectors = job->all.bytes / 512;
    job->disk.files.read_ms = 2000;
    job->disk.files.busy_ms = busy_ns / MS;
    job->disk.drives = job->disk.device[0] = job->disk.files;
    job->temperature_c[0] = 41;
    job->temperature_c[1] = NAN;
}

static void fill_inference(struct bench_inference *out)
{
    *out = (struct bench_inference){
        .tokens = BENCH_SAMPLE_TOKENS, .first_ns = 700 * MS,
        .busy_ns = 30 * MS * BENCH_SAMPLE_TOKENS, .demands = 640, .hits = 400, .repeats = 600,
        .repeat_hits = 400, .peak_bytes = 512 * MIB};
    out->stall_ns[STALL_TRUNK] = 20 * MS * BENCH_SAMPLE_TOKENS;
    out->stall_ns[STALL_EXPERTS] = 40 * MS * BENCH_SAMPLE_TOKENS;
    out->stall_ns[STALL_COMPUTE] = 10 * MS * BENCH_SAMPLE_TOKENS;
    for (uint32_t i = 0; i < BENCH_SAMPLE_TOKENS; i++) {
        histogram_add(&out->stall, 65 * MS + i * MS / 2);
    }
    for (uint32_t i = 0; i < 240; i++) {
        histogram_add(&out->ready, 2 * MS + i * 10000);
        histogram_add(&out->layer_stall, 100000 + i * 1000);
    }
    memset(out->hash, 0xab, sizeof out->hash);
}

static void fill_round(struct bench_round *round)
{
    for (int i = 0; i < BENCH_JOBS; i++) {
        round->job[i].device = need(2, sizeof(struct io_figures));
    }
    fill_job(&round->job[JOB_LIMIT_BEFORE], 600 * MS, 600 * MS, 150);
    fill_job(&round->job[JOB_REPLAY], 1000 * MS, 1000 * MS, READS);
    fill_job(&round->job[JOB_LIMIT_AFTER], 600 * MS, 600 * MS, 150);
    memset(round->job[JOB_LIMIT_BEFORE].class, 0, sizeof round->job[0].class);
    memset(round->job[JOB_LIMIT_AFTER].class, 0, sizeof round->job[0].class);
    fill_inference(&round->inference);
    bench_sample_token_ms(round, TOKEN_MS);
    round->job[JOB_COMPUTE].made = true;
    round->job[JOB_COMPUTE].all.wall_ns = 75 * MS;
    round->job[JOB_COMPUTE].temperature_c[0] = round->job[JOB_COMPUTE].temperature_c[1] = NAN;
    round->compute_s = 0.025;
    for (uint32_t which = 0; which < 2; which++) {
        for (uint32_t i = 0; i < 3; i++) {
            double rate = 0.6e9 + 0.2e9 * i - 0.01e9 * which;
            round->limit[which][i] = (struct bench_limit){1U << i, 4 * MIB, rate};
        }
        round->limit_best[which] = 2;
    }
}

void bench_sample_token_ms(struct bench_round *round, uint32_t ms)
{
    uint64_t wall_ns = (uint64_t)ms * MS * BENCH_SAMPLE_TOKENS;
    round->inference.wall_ns = wall_ns;
    round->inference.token = (struct histogram){0};
    for (uint32_t i = 0; i < BENCH_SAMPLE_TOKENS; i++) {
        histogram_add(&round->inference.token, ms * MS + i);
    }
    fill_job(&round->job[JOB_INFERENCE], wall_ns, wall_ns / 2, READS);
}

void bench_sample_skip(struct bench_round *round, enum bench_job_kind kind, const char *why)
{
    struct bench_job *job = &round->job[kind];
    struct io_figures *device = job->device;
    memset(device, 0, 2 * sizeof *device);
    *job = (struct bench_job){.device = device};
    snprintf(job->why_not, sizeof job->why_not, "%s", why);
    if (kind == JOB_COMPUTE) {
        round->compute_s = 0;
    }
}

void bench_sample_reason(struct bench_sample *sample, bool invalid, const char *text)
{
    struct bench_verdict *v = &sample->result.verdict;
    uint32_t at = invalid ? v->invalid : v->count;
    memmove(v->reason[at + 1], v->reason[at], (v->count - at) * sizeof v->reason[0]);
    snprintf(v->reason[at], sizeof v->reason[at], "%s", text);
    v->invalid += invalid;
    v->count++;
    v->valid = v->invalid == 0;
}

static void fill_facts(struct bench_facts *out, uint32_t io_depth)
{
    *out = (struct bench_facts){
        .isa = "avx2", .io_engine = "uring", .io_features = "defer_taskrun, fixed files",
        .policy = "arc", .fixed_buffers = true, .threads = 2, .workers = 2, .devices = 2,
        .files = 2, .direct_files = 2, .io_depth = io_depth, .working_slots = 8,
        .cache_slots = 32, .alignment = 512, .io_size_bytes = 4 * MIB, .tile_bytes = 4 * MIB,
        .ram_bytes = 600 * MIB, .slab_mapped_bytes = 512 * MIB, .slab_huge_bytes = 512 * MIB,
        .pinned_bytes = 64 * MIB, .plan_bytes = 590 * MIB};
}

static void fill_environment(struct environment *env)
{
    struct environment_device *d = &env->device[0];
    struct environment_place *p = &env->place[0];
    snprintf(env->system.kernel, sizeof env->system.kernel, "6.18.0");
    snprintf(env->system.cpu, sizeof env->system.cpu, "a processor");
    snprintf(d->name, sizeof d->name, "nvme0n1");
    snprintf(d->model, sizeof d->model, "A Drive");
    snprintf(d->firmware, sizeof d->firmware, "6201");
    snprintf(d->scheduler, sizeof d->scheduler, "none");
    snprintf(d->link.speed, sizeof d->link.speed, "16.0 GT/s PCIe");
    snprintf(p->file_system, sizeof p->file_system, "ext4");
    snprintf(p->source, sizeof p->source, "/dev/nvme0n1p2");
    env->system.io_uring_disabled = env->system.seccomp = -1;
    env->system.memlock_bytes = 8 * MIB;
    env->system.available_why = "the machine";
    d->link.width = 4;
    d->max_sectors_kb = 128;
    d->nr_requests = 1023;
    d->temperature_fd = -1;
    p->files = p->direct_files = 2;
    p->bytes = 8 * GIB;
    p->top = 0;
    env->place_count = env->device_count = 1;
    env->diskstats_fd = -1;
}

struct bench_sample *bench_sample_new(uint32_t points, uint32_t rounds)
{
    struct bench_sample *s = need(1, sizeof *s);
    s->request = (struct bench_request){
        .dir = "model", .command = "k3ring bench model --tokens 20", .ids = s->ids,
        .id_count = 4, .tokens = BENCH_SAMPLE_TOKENS, .warmup = 2, .rounds = rounds,
        .limit_ns = 3000 * MS, .point_count = points, .seed = 42};
    s->result = (struct bench_result){.request = &s->request, .model_bytes = 8 * GIB,
                                      .pass_bytes = GIB, .expert_bytes = 4 * MIB, .layers = 12,
                                      .experts = 64, .verdict = {.valid = true}};
    snprintf(s->result.file_path, sizeof s->result.file_path, "model/model-1.safetensors");
    fill_environment(&s->result.environment);
    s->result.point = need(points, sizeof *s->result.point);
    for (uint32_t p = 0; p < points; p++) {
        struct bench_point_result *to = &s->result.point[p];
        to->point = s->request.point[p] =
            (struct bench_point){1U << p, 4 * MIB, "arc", 600 * MIB};
        fill_facts(&to->facts, 1U << p);
        to->rounds = rounds;
        to->round = need(rounds + 1, sizeof *to->round);
        for (uint32_t r = 0; r < rounds; r++) {
            fill_round(&to->round[r]);
        }
    }
    return s;
}

void bench_sample_free(struct bench_sample *s)
{
    for (uint32_t p = 0; p < s->request.point_count; p++) {
        for (uint32_t r = 0; r < s->request.rounds; r++) {
            for (int i = 0; i < BENCH_JOBS; i++) {
                free(s->result.point[p].round[r].job[i].device);
            }
        }
        free(s->result.point[p].round);
    }
    free(s->result.point);
    free(s);
}

struct bench_round *bench_sample_round(struct bench_sample *s, uint32_t point, uint32_t round)
{
    return &s->result.point[point].round[round];
}

char *bench_sample_text(const struct bench_sample *s,
                        void (*report)(FILE *out, const struct bench_result *result))
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    report(out, &s->result);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}
