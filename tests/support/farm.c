/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/farm.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS_MAX 16
#define NO_JOB UINT32_MAX

struct shared {
    _Atomic uint32_t next;
    uint32_t doing[WORKERS_MAX]; /* NO_JOB between jobs */
    char why[][FARM_WHY_BYTES];  /* per job */
};

void *farm_memory(size_t size_bytes)
{
    void *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("farm_memory");
        abort();
    }
    return at;
}

static void work(const struct farm *farm, struct shared *shared, uint32_t worker)
{
    for (;;) {
        uint32_t job = atomic_fetch_add(&shared->next, 1);
        if (job >= farm->jobs) {
            break;
        }
        shared->doing[worker] = job;
        alarm(farm->limit_seconds);
        farm->run(farm->ctx, job, shared->why[job], FARM_WHY_BYTES);
        shared->doing[worker] = NO_JOB;
    }
    alarm(0);
}

static pid_t start(const struct farm *farm, struct shared *shared, uint32_t worker)
{
    shared->doing[worker] = NO_JOB;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        abort();
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* no worker outlives the test */
        work(farm, shared, worker);
        exit(EXIT_SUCCESS); /* not _exit: a leak check may have to speak */
    }
    return pid;
}

/* What a worker that ended in another way than expected was doing. */
static void blame(struct shared *shared, uint32_t worker, int status, uint32_t *strays)
{
    uint32_t job = shared->doing[worker];
    char how[96];
    if (WIFSIGNALED(status)) {
        snprintf(how, sizeof how, "ended by signal %d (%s)", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? "no end in sight" : strsignal(WTERMSIG(status)));
    } else {
        snprintf(how, sizeof how, "ended with exit status %d", WEXITSTATUS(status));
    }
    if (job == NO_JOB) {
        printf("a worker %s after its jobs: what it said is above\n", how);
        ++*strays;
    } else {
        snprintf(shared->why[job], FARM_WHY_BYTES, "%s", how);
    }
}

static uint32_t tell(const struct farm *farm, const struct shared *shared, uint32_t shown)
{
    uint32_t failed = 0;
    char text[FARM_WHY_BYTES];
    for (uint32_t job = 0; job < farm->jobs; job++) {
        if (shared->why[job][0] == '\0') {
            continue;
        }
        if (failed++ < shown) {
            farm->describe(farm->ctx, job, text, sizeof text);
            printf("job %u failed: %s\n  %s\n", job, shared->why[job], text);
        }
    }
    if (failed > shown) {
        printf("%u more failed\n", failed - shown);
    }
    fflush(stdout);
    return failed;
}

uint32_t farm_run(const struct farm *farm, uint32_t shown)
{
    size_t size = sizeof(struct shared) + (size_t)farm->jobs * FARM_WHY_BYTES;
    struct shared *shared = farm_memory(size);
    uint32_t workers = farm->workers < WORKERS_MAX ? farm->workers : WORKERS_MAX;
    uint32_t alive = workers;
    uint32_t strays = 0;
    pid_t pid[WORKERS_MAX];
    for (uint32_t i = 0; i < workers; i++) {
        pid[i] = start(farm, shared, i);
    }
    while (alive > 0) {
        int status = 0;
        pid_t ended = wait(&status);
        for (uint32_t i = 0; i < workers; i++) {
            if (pid[i] != ended) {
                continue;
            }
            if (status == 0) {
                alive--;
            } else {
                blame(shared, i, status, &strays);
                pid[i] = start(farm, shared, i);
            }
        }
    }
    uint32_t failed = tell(farm, shared, shown) + strays;
    munmap(shared, size);
    return failed;
}
