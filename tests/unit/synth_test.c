/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth.h"

#include <check.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/synth_layout.h"
#include "core/model/model.h"
#include "tests/support/suite.h"

#define PATH_BYTES 256

/* Test data lives in memory where it can: sparse files are costly to delete on some disks. */
static char scratch[PATH_BYTES];

static void make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "/dev/shm/synth-XXXXXX");
    if (mkdtemp(scratch) == NULL) {
        snprintf(scratch, sizeof scratch, "/tmp/synth-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(scratch));
    }
}

static void remove_scratch(void)
{
    ck_assert_int_eq(rmdir(scratch), 0);
}

/* A path in the scratch folder; valid until the fourth next call. */
static const char *in_scratch(const char *dir, const char *file)
{
    static char paths[4][PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % 4];
    ck_assert_int_lt(snprintf(path, PATH_BYTES, "%s/%s%s%s", scratch, dir,
                              file[0] != '\0' ? "/" : "", file), PATH_BYTES);
    return path;
}

static void remove_model(const char *dir, const struct synth_options *options)
{
    static const char *const others[] = {"config.json", "generation_config.json",
                                         "model.safetensors.index.json", MODEL_SYNTH_MARKER};
    struct synth_geometry geometry;
    ck_assert_int_eq(synth_geometry_init(options, &geometry), 0);
    for (uint32_t i = 0; i < geometry.shard_count; i++) {
        char name[SYNTH_FILE_NAME_BYTES];
        synth_shard_name(&geometry, i, name);
        ck_assert_int_eq(unlink(in_scratch(dir, name)), 0);
    }
    for (size_t i = 0; i < countof(others); i++) {
        ck_assert_int_eq(unlink(in_scratch(dir, others[i])), 0);
    }
    ck_assert_int_eq(rmdir(in_scratch(dir, "")), 0); /* so nothing else was in it */
}

/* The whole file, for the caller to free. */
static unsigned char *read_file(const char *path, uint64_t *size_bytes)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is there", path);
    struct stat status;
    ck_assert_int_eq(fstat(fileno(file), &status), 0);
    *size_bytes = (uint64_t)status.st_size;
    unsigned char *bytes = calloc(1, *size_bytes + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, *size_bytes, file), *size_bytes);
    fclose(file);
    return bytes;
}

static void check_sha256(const char *path, const char *expected)
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];
    char hex[2 * SHA256_DIGEST_SIZE + 1];
    uint64_t size;
    unsigned char *bytes = read_file(path, &size);
    sha256_init(&context);
    sha256_update(&context, size, bytes);
    sha256_digest(&context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    free(bytes);
    ck_assert_str_eq(hex, expected);
}

static const char *const tiny_sha256[] = {
    "ecd1607ab8f1daaf421ce307093dd68f5d1439d8d6082457c12406f29ac932d2",
    "95c2a1ac37c35aad96460bf1f047eb30e45362442771ac1cd77a853ac186c5e4",
    "b87754830592a9ec5819a49fc49736d903164644c6c217320a3934e7b56a8f84"};

START_TEST(the_tiny_model_is_the_known_one_with_any_number_of_writers)
{
    static const uint32_t threads[] = {0, 1, 3};
    const struct synth_options options = {.preset = SYNTH_TINY, .threads = threads[_i]};
    ck_assert_int_eq(synth_write(in_scratch("tiny", ""), &options), 0);
    for (uint32_t i = 0; i < countof(tiny_sha256); i++) {
        char name[SYNTH_FILE_NAME_BYTES];
        snprintf(name, sizeof name, "model-%05u-of-000003.safetensors", i + 1);
        check_sha256(in_scratch("tiny", name), tiny_sha256[i]);
    }
    remove_model("tiny", &options);
}
END_TEST

START_TEST(the_tiny_config_and_index_describe_what_was_written)
{
    const struct synth_options options = {.preset = SYNTH_TINY};
    struct model_config c;
    uint64_t size;
    ck_assert_int_eq(synth_write(in_scratch("tiny", ""), &options), 0);
    ck_assert_int_eq(config_load(in_scratch("tiny", ""), &c), 0);
    ck_assert_uint_eq(c.hidden, 128);
    ck_assert_uint_eq(c.layers, 13);
    ck_assert_uint_eq(c.attnres_block, 3);
    ck_assert_uint_eq(c.kda_heads, 4);
    ck_assert_uint_eq(c.mla_heads, 6);
    ck_assert_uint_eq(c.experts_per_token, 4);
    ck_assert(c.is_mla[3] && c.is_mla[7] && c.is_mla[11] && c.is_mla[12] && !c.is_mla[0]);
    ck_assert_int_eq(c.eos, 2);
    char *index = (char *)read_file(in_scratch("tiny", "model.safetensors.index.json"), &size);
    ck_assert_ptr_nonnull(strstr(index, "\"total_size\":4399840"));
    ck_assert_ptr_nonnull(strstr(index, "\"vision_tower.patch_embed.proj.weight\":"
                                        "\"model-00003-of-000003.safetensors\""));
    uint32_t entries = 0;
    for (const char *at = index; (at = strstr(at, ".safetensors\"")) != NULL; at++) {
        entries++;
    }
    ck_assert_uint_eq(entries, 1493);
    free(index);
    remove_model("tiny", &options);
}
END_TEST

static bool is_zero(const unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Which rows of a matrix hold anything. The caller frees. */
static bool *rows_present(int fd, const struct synth_tensor *tensor)
{
    const uint64_t rows = tensor->shape[0];
    const uint64_t row_bytes = tensor->size_bytes / rows;
    bool *present = calloc(rows, sizeof *present);
    unsigned char *row = malloc(row_bytes);
    ck_assert(present != NULL && row != NULL);
    for (uint64_t i = 0; i < rows; i++) {
        const off_t at = (off_t)(tensor->offset_bytes + i * row_bytes);
        if (lseek(fd, at, SEEK_DATA) >= at + (off_t)row_bytes) {
            continue;
        }
        ck_assert_int_eq(pread(fd, row, row_bytes, at), (ssize_t)row_bytes);
        present[i] = !is_zero(row, row_bytes);
    }
    free(row);
    return present;
}

/* Every window of 4 MiB that holds a whole row holds one that is written. window_row_bytes is
 * the size of a row of the matrix that sets the windows. */
static void check_windows(const struct synth_tensor *tensor, const bool *present,
                          uint64_t window_row_bytes)
{
    const uint64_t rows = tensor->shape[0];
    for (uint64_t begin = 0; begin < rows * window_row_bytes; begin += 4 * MIB) {
        const uint64_t end = min_u64(begin + 4 * MIB, rows * window_row_bytes);
        uint64_t row = div_ceil(begin, window_row_bytes);
        bool found = (row + 1) * window_row_bytes > end;
        for (; (row + 1) * window_row_bytes <= end; row++) {
            found |= present[row];
        }
        ck_assert_msg(found, "%s: a row in the window at %llu", tensor->name,
                      (unsigned long long)begin);
    }
}

static const struct synth_options sparse_options = {
    .preset = SYNTH_K3, .layers = 4, .experts = 8, .vocab = 2048, .seed = 7, .sparse = true};

/* Checks the tensor against the rules; *packed holds the rows of the packed part before. */
static void check_sparse_tensor(int fd, const struct synth_tensor *tensor, bool **packed)
{
    if (tensor->id != T_COUNT && (tensor->size_bytes < MIB || tensor->id == T_ROUTER)) {
        unsigned char *bytes = malloc(tensor->size_bytes);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_int_eq(pread(fd, bytes, tensor->size_bytes, (off_t)tensor->offset_bytes),
                         (ssize_t)tensor->size_bytes);
        const uint64_t tail = tensor->id == T_A_LOG ? 4 * 32 : 0;
        const uint64_t end = tensor->size_bytes - tail;
        const uint64_t last = min_u64(end, 64);
        ck_assert_msg(!is_zero(bytes + end - last, last), "%s", tensor->name);
        ck_assert(is_zero(bytes + end, tail));
        free(bytes);
        return;
    }
    bool *present = rows_present(fd, tensor);
    const bool scale = tensor->id == T_COUNT && strstr(tensor->name, "_scale") != NULL;
    const uint64_t row_bytes = tensor->size_bytes / tensor->shape[0];
    check_windows(tensor, present, scale ? row_bytes * 16 : row_bytes);
    if (scale) {
        ck_assert_int_eq(memcmp(*packed, present, tensor->shape[0] * sizeof *present), 0);
    }
    free(*packed);
    *packed = present;
}

/* st_size is that of the layout and st_blocks far less. */
static void check_sparse_shard(const struct synth_shard *shard)
{
    struct stat status;
    bool *packed = NULL;
    const int fd = open(in_scratch("sparse", shard->file_name), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_uint_eq((uint64_t)status.st_size, shard->size_bytes);
    ck_assert_uint_lt((uint64_t)status.st_blocks * 512, shard->size_bytes / 20 + 60 * MIB);
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        check_sparse_tensor(fd, &shard->tensors[i], &packed);
    }
    free(packed);
    close(fd);
}

START_TEST(a_sparse_model_holds_small_tensors_whole_and_rows_of_the_others)
{
    struct synth_geometry geometry;
    uint64_t size;
    ck_assert_int_eq(synth_geometry_init(&sparse_options, &geometry), 0);
    ck_assert_int_eq(synth_write(in_scratch("sparse", ""), &sparse_options), 0);
    for (uint32_t i = 0; i < geometry.shard_count; i++) {
        struct synth_shard shard;
        ck_assert_int_eq(synth_shard_init(&geometry, i, &shard), 0);
        check_sparse_shard(&shard);
        synth_shard_fini(&shard);
    }
    char *marker = (char *)read_file(in_scratch("sparse", MODEL_SYNTH_MARKER), &size);
    ck_assert_ptr_nonnull(strstr(marker, "seed: 7"));
    ck_assert_ptr_nonnull(strstr(marker, "sparse: yes"));
    free(marker);
    remove_model("sparse", &sparse_options);
}
END_TEST

START_TEST(a_folder_in_use_is_left_alone)
{
    const struct synth_options options = {.preset = SYNTH_TINY};
    uint64_t size;
    ck_assert_int_eq(mkdir(in_scratch("used", ""), 0777), 0);
    FILE *file = fopen(in_scratch("used", "config.json"), "w");
    ck_assert_ptr_nonnull(file);
    fputs("mine", file);
    fclose(file);
    ck_assert_int_eq(synth_write(in_scratch("used", ""), &options), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "config.json"));
    err_clear();
    ck_assert_int_eq(synth_write(in_scratch("used", "config.json"), &options), ERR_USAGE);
    char *text = (char *)read_file(in_scratch("used", "config.json"), &size);
    ck_assert_str_eq(text, "mine");
    free(text);
    ck_assert_int_eq(unlink(in_scratch("used", "config.json")), 0);
    err_clear();
    ck_assert_int_eq(synth_write(in_scratch("used", ""), &options), 0); /* empty now */
    remove_model("used", &options);
}
END_TEST

/* Kills a run when it has written so much. */
static void kill_synth(const char *name, const struct synth_options *options)
{
    pid_t pid = fork();
    if (pid == 0) {
        synth_write(in_scratch(name, ""), options);
        _exit(1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
}

static bool kill_at(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    const uint64_t *limit = user;
    (void)total_bytes;
    if (done_bytes >= *limit) {
        kill(getpid(), SIGKILL);
    }
    return true;
}

START_TEST(what_a_killed_run_left_is_begun_anew)
{
    static const uint64_t limits[] = {1, 2000000, 4399840};
    struct model *model;
    for (size_t i = 0; i < countof(limits); i++) {
        uint64_t limit = limits[i];
        struct synth_options options = {.preset = SYNTH_TINY, .progress = kill_at, .user = &limit};
        kill_synth("killed", &options);
        ck_assert_int_lt(model_open(in_scratch("killed", ""), NULL, &model), 0);
        err_clear();
        options.progress = NULL;
        ck_assert_msg(synth_write(in_scratch("killed", ""), &options) == 0, "%s", err_message());
        ck_assert_int_eq(access(in_scratch("killed", "config.json"), R_OK), 0);
        remove_model("killed", &options);
    }
}
END_TEST

START_TEST(a_foreign_file_among_what_a_killed_run_left_is_kept)
{
    uint64_t limit = 1;
    struct synth_options options = {.preset = SYNTH_TINY, .progress = kill_at, .user = &limit};
    kill_synth("mixed", &options);
    FILE *file = fopen(in_scratch("mixed", "notes"), "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    options.progress = NULL;
    ck_assert_int_eq(synth_write(in_scratch("mixed", ""), &options), ERR_USAGE);
    err_clear();
    ck_assert_int_eq(unlink(in_scratch("mixed", "notes")), 0);
    int held = open(in_scratch("mixed", ""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(held, LOCK_EX | LOCK_NB), 0); /* as another run would */
    ck_assert_int_eq(synth_write(in_scratch("mixed", ""), &options), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "another k3ring"));
    err_clear();
    close(held);
    ck_assert_int_eq(synth_write(in_scratch("mixed", ""), &options), 0);
    remove_model("mixed", &options);
}
END_TEST

START_TEST(a_model_larger_than_the_disk_is_refused_before_the_first_byte)
{
    const struct synth_options options = {.preset = SYNTH_K3};
    if (strncmp(scratch, "/dev/shm", 8) != 0) {
        printf("skipped: no memory file system, and a disk may well hold 1.6 TB\n");
        return;
    }
    ck_assert_int_eq(synth_write(in_scratch("large", ""), &options), ERR_FIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "--sparse"));
    ck_assert_int_ne(access(in_scratch("large", ""), F_OK), 0);
    err_clear();
}
END_TEST

static bool stop_at(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    const uint64_t *limit = user;
    ck_assert_uint_le(done_bytes, total_bytes);
    return done_bytes < *limit;
}

START_TEST(a_stopped_run_leaves_nothing)
{
    uint64_t limit = _i == 0 ? 1 : 4399840; /* in the first shard; in the last */
    const struct synth_options options = {.preset = SYNTH_TINY, .progress = stop_at,
                                          .user = &limit};
    ck_assert_int_eq(synth_write(in_scratch("stopped", ""), &options), ERR_STOPPED);
    ck_assert_int_ne(access(in_scratch("stopped", ""), F_OK), 0);
    err_clear();
}
END_TEST

START_TEST(a_failed_write_names_its_file_and_leaves_nothing)
{
    const struct synth_options options = {.preset = SYNTH_TINY};
    struct rlimit old;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = MIB, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int rc = synth_write(in_scratch("failed", ""), &options);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    ck_assert_int_eq(rc, ERR_OUTPUT);
    ck_assert_ptr_nonnull(strstr(err_message(), "of-000003.safetensors: "));
    ck_assert_ptr_nonnull(strstr(err_message(), "File too large"));
    ck_assert_int_ne(access(in_scratch("failed", ""), F_OK), 0);
    err_clear();
}
END_TEST

START_TEST(options_that_make_no_model_are_refused)
{
    static const struct synth_options refused[] = {
        {.preset = SYNTH_TINY, .layers = 5}, {.preset = SYNTH_TINY, .sparse = true},
        {.preset = SYNTH_TINY, .seed = 2}, {.preset = SYNTH_K3, .layers = 3},
        {.preset = SYNTH_K3, .layers = 94}, {.preset = SYNTH_K3, .experts = 897},
        {.preset = SYNTH_K3, .vocab = 255}, {.preset = SYNTH_K3, .vocab = 163841}};
    for (size_t i = 0; i < countof(refused); i++) {
        ck_assert_int_eq(synth_write(in_scratch("refused", ""), &refused[i]), ERR_USAGE);
        ck_assert_int_ne(access(in_scratch("refused", ""), F_OK), 0);
        err_clear();
    }
}
END_TEST

START_TEST(the_command_refuses_what_it_cannot_read)
{
    char *const lines[][4] = {{"synth", NULL}, {"synth", "refused", "--preset", "k4"},
                              {"synth", "refused", "--layers", "3"},
                              {"synth", "refused", "--experts", "0"}};
    for (size_t i = 0; i < countof(lines); i++) {
        char *argv[4];
        memcpy(argv, lines[i], sizeof argv);
        ck_assert_int_eq(cmd_synth(i == 0 ? 1 : 4, argv), ERR_USAGE);
        ck_assert_int_ne(access("refused", F_OK), 0);
        err_clear();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("synth");
    TCase *files = tcase_create("files");
    tcase_add_unchecked_fixture(files, make_scratch, remove_scratch);
    tcase_add_loop_test(files, the_tiny_model_is_the_known_one_with_any_number_of_writers, 0, 3);
    tcase_add_test(files, the_tiny_config_and_index_describe_what_was_written);
    tcase_add_test(files, a_sparse_model_holds_small_tensors_whole_and_rows_of_the_others);
    tcase_add_test(files, a_folder_in_use_is_left_alone);
    tcase_add_test(files, what_a_killed_run_left_is_begun_anew);
    tcase_add_test(files, a_foreign_file_among_what_a_killed_run_left_is_kept);
    tcase_add_test(files, a_model_larger_than_the_disk_is_refused_before_the_first_byte);
    tcase_add_loop_test(files, a_stopped_run_leaves_nothing, 0, 2);
    tcase_add_test(files, a_failed_write_names_its_file_and_leaves_nothing);
    tcase_add_test(files, options_that_make_no_model_are_refused);
    tcase_add_test(files, the_command_refuses_what_it_cannot_read);
    suite_add_tcase(suite, files);
    tcase_set_timeout(files, 60);
    return suite_run(suite) == 0 ? 0 : 1;
}
